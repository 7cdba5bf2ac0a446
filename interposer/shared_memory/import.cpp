// SPDX-License-Identifier: Apache-2.0
#include "interposer/shared_memory/import.h"

#include <algorithm>
#include <cstring>

#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"

namespace sharedgpu::shared_memory {
namespace {

// Returns the error that the program gets when a request has failed. If the exporter has no such allocation,
// or has freed it, this is the error that the driver returns in this case.
CUresult refusal(LoanOutcome outcome) {
  return outcome == LoanOutcome::unknown ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_MAP_FAILED;
}

CUresult map_failed(CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_MAP_FAILED;
}

// Maps a piece. The memory exists at least as long as this mapping.
CUresult map_piece(CUdeviceptr address, Bytes size, const UniqueFd& descriptor) {
  CUmemGenericAllocationHandle handle = 0;
  auto* os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));  // NOLINT
  CUresult result = SHAREDGPU_REAL(cuMemImportFromShareableHandle, &handle, os_handle,
                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  result = SHAREDGPU_REAL(cuMemMap, address, size.count, 0, handle, 0);
  SHAREDGPU_REAL(cuMemRelease, handle);
  return result;
}

// Gives the device of this thread's context access to the memory. This device may differ from the exporter's
// device, and from the device of a thread that opened the memory earlier.
CUresult allow_access(CUdeviceptr address, Bytes size) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUresult result = SHAREDGPU_REAL(cuCtxGetDevice, &access.location.id);
  return result == CUDA_SUCCESS ? SHAREDGPU_REAL(cuMemSetAccess, address, size.count, &access, 1) : result;
}

}  // namespace

std::optional<IpcTicket> ticket_in(const CUipcMemHandle& handle) {
  IpcTicket ticket;
  std::memcpy(static_cast<void*>(&ticket), &handle, sizeof ticket);
  if (ticket.magic != IpcTicket::kMagic) return std::nullopt;
  return ticket;
}

CUipcMemHandle handle_of(const IpcTicket& ticket) {
  CUipcMemHandle handle{};
  std::memcpy(&handle, static_cast<const void*>(&ticket), sizeof ticket);
  return handle;
}

CUresult Imports::open(const IpcTicket& ticket, CUdeviceptr* address) {
  CUcontext context = nullptr;
  CUresult result = SHAREDGPU_REAL(cuCtxGetCurrent, &context);
  if (result != CUDA_SUCCESS) return result;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const bool sane = ticket.name.loan < LockFile::kMostExports && ticket.mapped <= kLargestAllocation &&
                    ticket.offset <= ticket.mapped && ticket.size <= ticket.mapped - ticket.offset;
  if (!sane) return CUDA_ERROR_INVALID_VALUE;

  const std::lock_guard one_at_a_time(opening_);
  {
    const std::lock_guard lock(mutex_);
    for (auto& [known, its] : opened_) {
      if (its.name != ticket.name) continue;
      result = allow_access(its.base, its.mapped);
      if (result != CUDA_SUCCESS) return map_failed(result);
      ++its.openers[context];
      *address = known;
      return CUDA_SUCCESS;
    }
  }
  Opened opened{.name = ticket.name, .openers = {{context, 1}}, .mapped = ticket.mapped, .size = ticket.size};
  // Takes the lock before it requests the first piece. If the exporter frees the memory later, the memory
  // stays until this process closes it.
  result = hold(ticket.name);
  if (result == CUDA_SUCCESS) result = map(opened);
  const std::lock_guard lock(mutex_);
  if (result != CUDA_SUCCESS) {
    let_go(ticket.name);
    return result;
  }
  *address = opened.base + ticket.offset.count;
  opened_.emplace(*address, opened);
  return CUDA_SUCCESS;
}

// Locks the exported allocation in the exporter's lock file. If this process does not have the lock file yet,
// first requests it. Without the lock file, the import works, too. But if the exporter then frees memory that
// this process has open, the bytes of this memory are not counted correctly.
CUresult Imports::hold(LoanName name) {
  {
    const std::lock_guard lock(mutex_);
    ++held_[name];
    if (lock_files_[name.lender]) {
      lock_files_[name.lender].hold(name.loan);
      return CUDA_SUCCESS;
    }
  }
  Answer answer = exporters_.ask(name, kLien);
  if (answer.outcome == LoanOutcome::unknown) return refusal(answer.outcome);
  const std::lock_guard lock(mutex_);
  move_out_of_the_way(answer.descriptor);
  lock_files_[name.lender].adopt(std::move(answer.descriptor));
  lock_files_[name.lender].hold(name.loan);
  return CUDA_SUCCESS;
}

// Called with mutex_ held.
void Imports::let_go(LoanName name) {
  const auto held = held_.find(name);
  if (--held->second != 0) return;
  held_.erase(held);
  lock_files_[name.lender].let_go(name.loan);
  if (std::ranges::none_of(held_, [=](const auto& entry) { return entry.first.lender == name.lender; }))
    lock_files_.erase(name.lender);
}

CUresult Imports::map(Opened& opened) {
  CUresult result = SHAREDGPU_REAL(cuMemAddressReserve, &opened.base, opened.mapped.count, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  Bytes done;
  result = map_pieces(opened, done);
  if (result == CUDA_SUCCESS) return CUDA_SUCCESS;
  if (done != Bytes{}) SHAREDGPU_REAL(cuMemUnmap, opened.base, done.count);
  SHAREDGPU_REAL(cuMemAddressFree, opened.base, opened.mapped.count);
  return result;
}

CUresult Imports::map_pieces(const Opened& opened, Bytes& done) {
  for (unsigned piece = 0; done < opened.mapped; ++piece) {
    const Answer answer = exporters_.ask(opened.name, piece);
    if (answer.outcome != LoanOutcome::given) return refusal(answer.outcome);
    if (answer.size == Bytes{} || answer.size > opened.mapped - done) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = map_piece(opened.base + done.count, answer.size, answer.descriptor);
    if (result != CUDA_SUCCESS) return map_failed(result);
    done += answer.size;
  }
  CUresult result = allow_access(opened.base, opened.mapped);
  return result == CUDA_SUCCESS ? result : map_failed(result);
}

std::optional<CUresult> Imports::close(CUdeviceptr address) {
  std::unique_lock lock(mutex_);
  auto found = opened_.find(address);
  if (found == opened_.end() || found->second.openers.empty()) return std::nullopt;
  auto& openers = found->second.openers;
  CUcontext context = nullptr;
  SHAREDGPU_REAL(cuCtxGetCurrent, &context);
  auto opener = openers.find(context);
  if (opener == openers.end()) opener = openers.begin();
  if (--opener->second == 0) openers.erase(opener);
  // During a capture no thread may wait for the GPU, so run() closes the memory later.
  if (openers.empty() && !gate::capturing()) wait_and_unmap(lock, found);
  return CUDA_SUCCESS;
}

void Imports::close_all(CUcontext context) {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto found = std::ranges::find_if(
        opened_, [=](const auto& entry) { return entry.second.openers.contains(context); });
    if (found == opened_.end()) return;
    found->second.openers.erase(context);
    if (found->second.openers.empty() && !gate::capturing()) unmap(lock, opened_.extract(found));
  }
}

// Waits for the work of all contexts, since work of any context may use the memory. If a capture forbids
// waiting, run() closes the memory later. Like unmap(), releases mutex_ in the meantime.
void Imports::wait_and_unmap(std::unique_lock<std::mutex>& lock, AllOpened::iterator found) {
  auto node = opened_.extract(found);
  lock.unlock();
  if (contexts_.synchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
    lock.lock();
    opened_.insert(std::move(node));
    return;
  }
  lock.lock();
  unmap(lock, std::move(node));
}

void Imports::unmap(std::unique_lock<std::mutex>& lock, AllOpened::node_type node) {
  const Opened& opened = node.mapped();
  lock.unlock();
  SHAREDGPU_REAL(cuMemUnmap, opened.base, opened.mapped.count);
  SHAREDGPU_REAL(cuMemAddressFree, opened.base, opened.mapped.count);
  if (opened.heir != nullptr) opened.heir->unpin(opened.mapped);
  lock.lock();
  let_go(opened.name);
}

std::optional<AddressRange> Imports::find(CUdeviceptr address) const {
  const std::lock_guard lock(mutex_);
  auto after = opened_.upper_bound(address);
  if (after == opened_.begin()) return std::nullopt;
  const auto& [base, opened] = *std::prev(after);
  if (address - base >= opened.size.count) return std::nullopt;
  return AddressRange{base, opened.size};
}

void Imports::run(Pinning& memory) {
  std::unique_lock lock(mutex_);
  for (auto& [address, opened] : opened_) {
    const LockFile& file = lock_files_[opened.name.lender];
    if (opened.heir != nullptr || !file || file.exporter_lives() || !file.inherit(opened.name.loan)) continue;
    opened.heir = &memory;
    memory.pin_unasked(opened.mapped);
  }
  if (gate::capturing()) return;
  auto closing =
      std::ranges::find_if(opened_, [](const auto& entry) { return entry.second.openers.empty(); });
  if (closing != opened_.end())
    wait_and_unmap(lock, closing);  // closes only one import per call, since the map may change while the
                                    // mutex is released
}

}  // namespace sharedgpu::shared_memory
