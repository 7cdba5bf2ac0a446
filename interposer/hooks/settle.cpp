// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/settle.h"

#include <algorithm>
#include <ctime>

#include "interposer/gate/clock.h"
#include "interposer/gate/gate.h"
#include "interposer/oversize/active.h"
#include "interposer/process/process.h"

namespace sharedgpu::hooks {

namespace {

// If this many exchanges cannot bring the memory to the GPU, the memory does not fit on the GPU beside the
// pinned memory.
constexpr unsigned kMostExchanges = 8;

session::DeviceSession* session_with(const Memory& memory) {
  for (const CUdevice device : process::devices())
    if (process::memory_of(device) == &memory) return process::session_of(device);
  return nullptr;
}

// Brings away memory of the range to the GPU, or at least a part of it. If no memory of the range is away,
// makes the range one handle if to_merge() requires that. Returns `closed` if there was nothing to do, or if
// the turn has ended.
session::Exchanged prepare(Memory& memory, AddressRange range) {
  session::DeviceSession* const session = session_with(memory);
  if (session == nullptr) return session::Exchanged::closed;
  const auto to_merge = memory.to_merge(range.base);
  if (to_merge) range = *to_merge;
  if (oversize::is_active() && session->residence() != nullptr) {
    const std::vector<AwayHandle> handles = memory.away_memory()->within(range.base, range.size);
    if (std::ranges::any_of(handles, &AwayHandle::away)) {
      const session::ExchangeChoice choice = session->residence()->choose(handles);
      const session::Exchanged outcome = session->exchange(choice.out, choice.in).outcome;
      return outcome == session::Exchanged::closed ? outcome : session::Exchanged::complete;
    }
  }
  return to_merge ? session->merge(range.base).outcome : session::Exchanged::closed;
}

CUresult settle(Memory& memory, CUdeviceptr address, Bytes size) {
  return settle_with(memory, address, size, [&] { return memory.settle(address, size); });
}

CUresult settle_mappings(Memory& memory, ProgramMemory& program, CUdeviceptr address, CUdeviceptr end) {
  while (address < end) {
    const auto mapping = program.next(address, {end - address});
    if (!mapping) break;
    const CUdeviceptr begin = std::max(address, mapping->address);
    address = std::min(end, mapping->address + mapping->size.count);
    if (CUresult refused = settle(memory, begin, {address - begin}); refused != CUDA_SUCCESS) return refused;
  }
  return CUDA_SUCCESS;
}

}  // namespace

// This function calls the arbiter outside the gate: a thread that waited for the arbiter inside the gate
// would block a drain.
CUresult settle_with(Memory& memory, CUdeviceptr address, Bytes size,
                     const std::function<CUresult()>& attempt) {
  for (unsigned exchanges = 0;;) {
    { gate::Pass in_our_turn; }
    const CUresult result = attempt();
    if (result != CUDA_ERROR_NOT_READY) return result;
    const session::Exchanged prepared = prepare(memory, {address, size});
    if (prepared == session::Exchanged::closed)
      gate::nap(std::chrono::milliseconds(1));  // the turn has ended
    else if (prepared == session::Exchanged::partial || ++exchanges == kMostExchanges)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

CUresult settle(const Place& place, CUdeviceptr address, Bytes size) {
  return settle(*place.memory, address, size);
}

CUresult settle_mappings(CUdeviceptr address, Bytes size) {
  const CUdeviceptr end = address + std::min<CUdeviceptr>(size.count, ~address);
  for (Memory* memory : process::memories())
    if (ProgramMemory* program = memory->program_memory())
      if (CUresult refused = settle_mappings(*memory, *program, address, end); refused != CUDA_SUCCESS)
        return refused;
  return CUDA_SUCCESS;
}

std::optional<Allocation> allocation_at(CUdeviceptr address) {
  const auto place = process::find(address);
  if (!place) return std::nullopt;
  Allocation found{*place, pools().find(address)};
  if (found.pooled) found.range = found.pooled->range;
  return found;
}

}  // namespace sharedgpu::hooks
