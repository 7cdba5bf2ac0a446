// SPDX-License-Identifier: Apache-2.0
// A table with a row for each session, tenant, GPU or domain of the model. Each part of the core has its own
// tables.
//
// A row's index is the slot number of its entity. Slot numbers are small and are reused, so a lookup is an
// array access. Only the part that owns the table can change its rows. References to rows are valid until
// begin() is called.
#pragma once

#include <cstddef>
#include <vector>

namespace sharedgpu {

template <class Entity, class Row>
class Table {
 public:
  Row& operator[](const Entity& entity) { return rows_[entity.slot]; }
  const Row& operator[](const Entity& entity) const { return rows_[entity.slot]; }
  // Resets the row of a new entity, since an earlier entity may have had the same slot.
  Row& begin(const Entity& entity) {
    if (rows_.size() <= entity.slot) rows_.resize(entity.slot + 1);
    return rows_[entity.slot] = Row();
  }

 private:
  std::vector<Row> rows_;
};

}  // namespace sharedgpu
