// SPDX-License-Identifier: Apache-2.0
// Reads the records of this node's ledger, or of ledger files that the user names.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "arbiter/ledger/records.h"

namespace sharedgpu::cli {

struct LedgerInput {
  std::string config;
  std::vector<std::string> files;  // empty: the ledger of this node
};

// Passes all records to `take`, oldest first if the files belong to one ledger, otherwise in the order of the
// files. Complains about damaged lines and lost records. Returns the exit status of the command.
int read_ledger_input(const LedgerInput& input, const std::function<void(const Record&)>& take);

}  // namespace sharedgpu::cli
