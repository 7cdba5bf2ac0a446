// SPDX-License-Identifier: Apache-2.0
// The import side of CUDA IPC: physical memory of other processes of the tenant, mapped here at addresses of
// this process. The exporting process counts this memory as pinned. If the exporting process has died, one of
// the importing processes counts the memory as its own pinned memory.
//
// Thread-safe.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <optional>

#include "interposer/memory/maintenance.h"
#include "interposer/memory/memory.h"
#include "interposer/shared_memory/lock_file.h"
#include "interposer/tracking/contexts.h"

namespace sharedgpu::shared_memory {

// The contents of a CUipcMemHandle for memory of the interposer, not of the driver.
struct IpcTicket {
  static constexpr std::uint64_t kMagic = 0x9d5f2e8a41b7c306;  // no handle of the driver begins with this
                                                               // number
  std::uint64_t magic = kMagic;
  LoanName name;
  Bytes mapped;  // total size of all pieces
  Bytes offset;  // offset of the allocation from the start of the first piece
  Bytes size;    // size of the allocation
};
static_assert(sizeof(IpcTicket) <= sizeof(CUipcMemHandle));

// Returns nullopt if the handle is for memory of the driver.
std::optional<IpcTicket> ticket_in(const CUipcMemHandle& handle);
CUipcMemHandle handle_of(const IpcTicket& ticket);

class Imports final : public Maintenance {
 public:
  struct Answer {
    LoanOutcome outcome = LoanOutcome::failed;
    unsigned pieces = 0;
    Bytes size;
    UniqueFd descriptor;
  };
  class Exporters {
   public:
    virtual ~Exporters() = default;
    // Requests a piece, or the lock file (kLien), from the exporter. Blocks until the answer arrives. The
    // outcome is `unknown` if the exporter ends before it answers, and `failed` if there is no session, or no
    // answer arrives in time.
    virtual Answer ask(LoanName name, std::uint32_t piece) = 0;
  };
  Imports(Exporters& exporters, tracking::Contexts& contexts) : exporters_(exporters), contexts_(contexts) {}

  // Implement cuIpcOpenMemHandle and cuIpcCloseMemHandle, in the calling thread's context. close() returns
  // nullopt if open() has not returned the address, or the program has closed it as often as it opened it.
  CUresult open(const IpcTicket& ticket, CUdeviceptr* address);
  std::optional<CUresult> close(CUdeviceptr address);
  // Ends all openings in `context`, and closes the imports that are open in no other context. Does not wait
  // for the GPU: the context's work must have finished.
  void close_all(CUcontext context);
  std::optional<AddressRange> find(CUdeviceptr address) const;

  // Counts the memory of dead exporters as pinned, unless another importer already counts it. Also closes one
  // import that could not be closed during a capture.
  void run(Pinning& memory) override;

 private:
  struct Opened {
    LoanName name;
    std::map<CUcontext, unsigned>
        openers;  // number of openings in each context; if empty, run() closes the import after the capture
    CUdeviceptr base = 0;  // base of the mapping
    Bytes mapped;
    Bytes size;
    Pinning* heir = nullptr;  // if the exporter is dead and this process counts the memory as pinned, the
                              // object that counts it; otherwise null
  };
  using AllOpened = std::map<CUdeviceptr, Opened>;  // the keys are the addresses that open() has returned to
                                                    // the program

  CUresult hold(LoanName name);
  void let_go(LoanName name);
  CUresult map(Opened& opened);
  CUresult map_pieces(const Opened& opened, Bytes& done);
  void wait_and_unmap(std::unique_lock<std::mutex>& lock, AllOpened::iterator found);
  void unmap(std::unique_lock<std::mutex>& lock, AllOpened::node_type node);

  Exporters& exporters_;
  tracking::Contexts& contexts_;
  std::mutex opening_;  // held during open(); taken before mutex_
  mutable std::mutex mutex_;
  AllOpened opened_;
  // held_ has, for each exported allocation, the number of openings that need its lock, including openings in
  // progress. lock_files_ has the lock files; its keys are the exporters' random numbers.
  std::map<LoanName, unsigned> held_;
  std::map<std::uint64_t, LockFile> lock_files_;
};

}  // namespace sharedgpu::shared_memory
