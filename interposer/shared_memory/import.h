// SPDX-License-Identifier: Apache-2.0
// The import side of CUDA IPC: physical memory of other processes of the tenant, mapped here at addresses of
// this process. The exporting process counts this memory as pinned. If that process has died, one of the
// importers counts it.
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

// The contents of a CUipcMemHandle that names memory of the interposer, not of the driver.
struct IpcTicket {
  static constexpr std::uint64_t kMagic = 0x9d5f2e8a41b7c306;  // no handle of the driver begins with it
  std::uint64_t magic = kMagic;
  LoanName name;
  Bytes mapped;  // total size of all pieces
  Bytes offset;  // offset of the allocation in the pieces
  Bytes size;    // size of the allocation
};
static_assert(sizeof(IpcTicket) <= sizeof(CUipcMemHandle));

// Returns nullopt if the handle is the driver's own.
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
    // Requests a piece from the exporter. Blocks until there is an answer, or no answer can come (`failed`).
    virtual Answer ask(LoanName name, std::uint32_t piece) = 0;
  };
  Imports(Exporters& exporters, tracking::Contexts& contexts) : exporters_(exporters), contexts_(contexts) {}

  // cuIpcOpenMemHandle and cuIpcCloseMemHandle, in the calling thread's context. close() returns nullopt if
  // the memory is not ours.
  CUresult open(const IpcTicket& ticket, CUdeviceptr* address);
  std::optional<CUresult> close(CUdeviceptr address);
  // Closes all imports that were opened only in `context`. The context's work has finished, so this does not
  // wait.
  void close_all(CUcontext context);
  std::optional<AddressRange> find(CUdeviceptr address) const;

  // Takes over counting the memory of dead exporters, and closes imports that a capture kept open.
  void run(Pinning& memory) override;

 private:
  struct Opened {
    LoanName name;
    std::map<CUcontext, unsigned>
        openers;           // number of openings in each context; empty: the memory is closed after a capture
    CUdeviceptr base = 0;  // base of the mapping
    Bytes mapped;
    Bytes size;
    Pinning* heir =
        nullptr;  // the accounting that counts the memory as pinned if the exporter is dead; else null
  };
  using AllOpened = std::map<CUdeviceptr, Opened>;  // the key is the address that was returned to the program

  CUresult hold(LoanName name);
  void let_go(LoanName name);
  CUresult map(Opened& opened);
  CUresult map_pieces(const Opened& opened, Bytes& done);
  void wait_and_unmap(std::unique_lock<std::mutex>& lock, AllOpened::iterator found);
  void unmap(std::unique_lock<std::mutex>& lock, AllOpened::node_type node);

  Exporters& exporters_;
  tracking::Contexts& contexts_;
  std::mutex opening_;  // one open at a time; taken before mutex_
  mutable std::mutex mutex_;
  AllOpened opened_;
  // held_: the number of openings, in progress or complete, that need the lock of each export. lock_files_:
  // the lock files, by exporter.
  std::map<LoanName, unsigned> held_;
  std::map<std::uint64_t, LockFile> lock_files_;
};

}  // namespace sharedgpu::shared_memory
