// SPDX-License-Identifier: Apache-2.0
// What this process has borrowed from others of its tenant: physical memory of theirs, mapped here at
// addresses of its own. The lender counts it, as pinned; where the lender has died, one of the borrowers
// does.
//
// Safe from all threads.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <optional>

#include "interposer/memory/memory.h"
#include "interposer/session/contexts.h"
#include "interposer/session/lien.h"
#include "interposer/session/maintenance.h"

namespace sharedgpu::session {

// What a CUipcMemHandle says that names memory of ours.
struct IpcTicket {
  static constexpr std::uint64_t kMagic = 0x9d5f2e8a41b7c306;  // no handle of the driver begins with it
  std::uint64_t magic = kMagic;
  LoanName name;
  Bytes mapped;  // of all pieces
  Bytes offset;  // of the allocation in them
  Bytes size;    // of the allocation
};
static_assert(sizeof(IpcTicket) <= sizeof(CUipcMemHandle));

// nullopt: it is the driver's own.
std::optional<IpcTicket> ticket_in(const CUipcMemHandle& handle);
CUipcMemHandle handle_of(const IpcTicket& ticket);

class Borrowing final : public Maintenance {
 public:
  struct Answer {
    LoanOutcome outcome = LoanOutcome::failed;
    unsigned pieces = 0;
    Bytes size;
    UniqueFd descriptor;
  };
  class Lenders {
   public:
    virtual ~Lenders() = default;
    // Asks the lender for a piece. Blocks until there is an answer, or no hope of one (`failed`).
    virtual Answer ask(LoanName name, std::uint32_t piece) = 0;
  };
  Borrowing(Lenders& lenders, Contexts& contexts) : lenders_(lenders), contexts_(contexts) {}

  // cuIpcOpenMemHandle and cuIpcCloseMemHandle, in the calling thread's context. close(): nullopt: not ours.
  CUresult open(const IpcTicket& ticket, CUdeviceptr* address);
  std::optional<CUresult> close(CUdeviceptr address);
  // Closes all that was opened in `context` alone, whose work is over: waits for nothing.
  void close_all(CUcontext context);
  std::optional<AddressRange> find(CUdeviceptr address) const;

  // Takes over what dead lenders counted, and closes what a capture kept open.
  void run(Pinning& memory) override;

 private:
  struct Opened {
    LoanName name;
    std::map<CUcontext, unsigned> openers;  // and how often; none: to be closed after a capture
    CUdeviceptr base = 0;                   // of the mapping
    Bytes mapped;
    Bytes size;
    Pinning* heir = nullptr;  // which counts it as pinned, the lender being dead
  };
  using AllOpened = std::map<CUdeviceptr, Opened>;  // by the address that the program got

  CUresult hold(LoanName name);
  void let_go(LoanName name);
  CUresult map(Opened& opened);
  CUresult map_pieces(const Opened& opened, Bytes& done);
  void wait_and_unmap(std::unique_lock<std::mutex>& lock, AllOpened::iterator found);
  void unmap(std::unique_lock<std::mutex>& lock, AllOpened::node_type node);

  Lenders& lenders_;
  Contexts& contexts_;
  std::mutex opening_;  // one open at a time; taken before mutex_
  mutable std::mutex mutex_;
  AllOpened opened_;
  // How many openings, under way or complete, need each loan's lock; and the locks, by lender.
  std::map<LoanName, unsigned> held_;
  std::map<std::uint64_t, Lien> liens_;
};

}  // namespace sharedgpu::session
