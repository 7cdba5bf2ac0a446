// SPDX-License-Identifier: Apache-2.0
// The service thread: the one that talks with the arbiter, and finds it again when it was lost. It hands what
// the arbiter wants to the turn thread, and reports what it is given a source of.
#pragma once

#include "interposer/session/deadline_reports.h"
#include "interposer/session/handshake.h"
#include "interposer/session/lending.h"
#include "interposer/session/requests.h"
#include "interposer/session/settings.h"
#include "interposer/session/turn_worker.h"

namespace sharedgpu::session {

class ArbiterLink {
 public:
  ArbiterLink(const Settings& settings, Outbox& outbox, Requests& requests, TurnWorker& turns,
              const ReportSource& reports, Lending& lending, gate::PageSlot slot)
      : settings_(settings),
        outbox_(outbox),
        requests_(requests),
        turns_(turns),
        reports_(reports),
        lending_(lending),
        slot_(slot) {}

  // Takes over a connection that has been welcomed. Before run().
  void adopt(Handshake& hands);
  // Never returns, unless the arbiter refuses to take the session back: then it runs as plain CUDA.
  void run();

  // From any thread: what Attach says. Once, before an attach request.
  void set_gpu(const Attach& attach);
  // Before run(), for one session of the process: where the program tells of its deadlines.
  void listen_to(const DeadlinePipe& pipe) { deadlines_ = DeadlineReports(pipe); }
  // Before run(), in its place: gives the connection back.
  void leave() { channel_.close(); }
  // How many words have come from the arbiter.
  std::uint64_t words() const { return words_.load(std::memory_order_acquire); }
  // From any thread: not even a ping was answered. The arbiter hangs, until a word comes from it.
  void note_silence();
  bool silent() const { return silent_.load(std::memory_order_acquire); }
  // Since when there has been no connection; zero while there is one.
  Nanoseconds lost_since() const { return Nanoseconds(lost_since_.load(std::memory_order_acquire)); }
  Backend backend() const { return backend_.load(std::memory_order_relaxed); }

 private:
  int serve();
  void disconnect();
  bool reconnect();
  void give_up(const char* reason);
  int resume();
  int send(const Message& message, int descriptor = -1);
  int send_all();
  int send_request(const Requests::Unsent& unsent);
  int send_report(const Report& report);
  void handle(const Message& message, UniqueFd descriptor);
  void decide(const Message& message);
  void restore(const Restore& restore);
  void revoke(const Revoke& revoke);
  void step(const Step& step);
  int report_deadlines();
  void lend(const Wanted& wanted, UniqueFd borrower);
  Usage usage(std::uint64_t request, bool stuck = false) const;
  template <class Body>
  int tell(Body body);

  const Settings& settings_;
  Outbox& outbox_;
  Requests& requests_;
  TurnWorker& turns_;
  const ReportSource& reports_;
  Lending& lending_;
  const gate::PageSlot slot_;

  DeadlineReports deadlines_;
  Nanoseconds deadlines_read_{};

  Channel channel_;
  FileIdentity socket_;  // of channel_
  Epoch epoch_;
  std::atomic<Backend> backend_{Backend::swap};
  std::atomic<std::int64_t> lost_since_{0};
  std::atomic<bool> silent_{false};
  std::atomic<std::uint64_t> words_{0};
  Attach attach_;  // written once by set_gpu(), then read only
  std::atomic<bool> has_gpu_{false};
  bool refused_ = false;
  Traffic told_;             // of what the memory has moved, on all connections
  Traffic told_before_;      // the same, before this one
  bool attached_ = false;    // on this or an earlier connection
  std::uint64_t order_ = 0;  // the last Revoke or Step of this arbiter
  bool released_ = false;    // Released was said, and neither Restore nor Step has come since
};

}  // namespace sharedgpu::session
