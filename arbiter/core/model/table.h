// SPDX-License-Identifier: Apache-2.0
// A part's own rows, one for each session, tenant or GPU of the model.
//
// An entity's slot is its index here. Slots are small and are used again, so a lookup is an array access.
// Only the part that owns the table can change its rows. References to rows are valid until begin() is
// called.
#pragma once

#include <cstddef>
#include <vector>

namespace sharedgpu {

template <class Entity, class Row>
class Table {
 public:
  Row& operator[](const Entity& entity) { return rows_[entity.slot]; }
  const Row& operator[](const Entity& entity) const { return rows_[entity.slot]; }
  // A new entity has come, perhaps in the slot of one that is gone.
  Row& begin(const Entity& entity) {
    if (rows_.size() <= entity.slot) rows_.resize(entity.slot + 1);
    return rows_[entity.slot] = Row();
  }

 private:
  std::vector<Row> rows_;
};

}  // namespace sharedgpu
