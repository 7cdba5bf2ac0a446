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

// Memory that cannot come in with this many exchanges does not fit beside the pinned memory.
constexpr unsigned kMostExchanges = 8;

// If a part of the memory is away, brings it in, at least in part. Returns false if nothing is away, or the
// turn has ended.
bool bring_in(Memory& memory, CUdeviceptr address, Bytes size) {
  if (!oversize::is_active()) return false;
  for (const CUdevice device : process::devices()) {
    session::DeviceSession* const session = process::session_of(device);
    if (session->memory() != &memory || session->residence() == nullptr) continue;
    const std::vector<AwayHandle> handles = memory.away_memory()->within(address, size);
    if (std::ranges::none_of(handles, &AwayHandle::away)) return false;
    const session::ExchangeChoice choice = session->residence()->choose(handles);
    return session->exchange(choice.out, choice.in).outcome != session::Exchanged::closed;
  }
  return false;
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

// The arbiter is asked outside the gate, since a thread that waits for the arbiter inside the gate would
// block a drain.
CUresult settle_with(Memory& memory, CUdeviceptr address, Bytes size,
                     const std::function<CUresult()>& attempt) {
  for (unsigned exchanges = 0;;) {
    { gate::Pass in_our_turn; }
    const CUresult result = attempt();
    if (result != CUDA_ERROR_NOT_READY) return result;
    if (bring_in(memory, address, size)) {
      if (++exchanges == kMostExchanges) return CUDA_ERROR_OUT_OF_MEMORY;
    } else {
      gate::nap(std::chrono::milliseconds(1));  // the turn ended in between
    }
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
