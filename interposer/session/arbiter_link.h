// SPDX-License-Identifier: Apache-2.0
// The service thread: talks to the arbiter, and reconnects after a lost connection. The service thread passes
// the arbiter's orders to the turn thread, and reports the session's memory use.
#pragma once

#include "interposer/session/deadline_reports.h"
#include "interposer/session/handshake.h"
#include "interposer/session/requests.h"
#include "interposer/session/settings.h"
#include "interposer/session/turn_worker.h"
#include "interposer/shared_memory/export.h"

namespace sharedgpu::session {

class ArbiterLink {
 public:
  ArbiterLink(const Settings& settings, Outbox& outbox, Requests& requests, TurnWorker& turns,
              shared_memory::Exports& exports, const ExchangeTotals& totals, gate::PageSlot slot)
      : settings_(settings),
        outbox_(outbox),
        requests_(requests),
        turns_(turns),
        exports_(exports),
        totals_(totals),
        slot_(slot) {}

  // Takes over a connection on which the arbiter has sent Welcome. Call it before run().
  void adopt(Handshake& hands);
  // Serves the connection, and reconnects after a loss. Returns only if the arbiter refuses the session or
  // speaks another protocol. The session is unmanaged from then on.
  void run();

  // Sets the contents of Attach, and the source of the memory reports. If `reports` is null, the reports say
  // zero. Call it once, before the attach request. Thread-safe.
  void set_gpu(const Attach& attach, const ReportSource* reports);
  // Sets the pipe through which the program reports its deadlines. Call it before run(), for only one session
  // of the process.
  void listen_to(const DeadlinePipe& pipe) { deadlines_ = DeadlineReports(pipe); }
  // Closes the connection. Call it instead of run().
  void leave() { channel_.close(); }
  // The number of messages received from the arbiter.
  std::uint64_t words() const { return words_.load(std::memory_order_acquire); }
  // Records that the arbiter has not even answered a ping: until the next message of the arbiter, silent()
  // returns true. Thread-safe.
  void note_silence();
  bool silent() const { return silent_.load(std::memory_order_acquire); }
  // The time at which the connection was lost; zero while there is a connection. When run() has given up the
  // session, the result is nonzero for good, but no longer a time.
  Nanoseconds lost_since() const { return Nanoseconds(lost_since_.load(std::memory_order_acquire)); }
  Backend backend() const { return backend_.load(std::memory_order_relaxed); }
  // Returns true if the last Attached message permits away memory.
  bool may_be_oversized() const { return may_be_oversized_.load(std::memory_order_relaxed); }

 private:
  const ReportSource& reports() const { return *reports_.load(std::memory_order_acquire); }
  int serve();
  void disconnect();
  bool reconnect();
  void give_up(const char* reason);
  int resume();
  int send(const Message& message, int descriptor = -1);
  int send_all();
  int send_claim();
  int send_request(const Requests::Unsent& unsent);
  int send_report(const Report& report);
  void handle(const Message& message, UniqueFd descriptor);
  void decide(const Message& message);
  void restore(const Restore& restore);
  void revoke(const Revoke& revoke);
  void step(const Step& step);
  int report_deadlines();
  void send_piece(const Wanted& wanted, UniqueFd importer);
  Usage usage(std::uint64_t request, bool stuck = false) const;
  template <class Body>
  int tell(Body body);

  const Settings& settings_;
  Outbox& outbox_;
  Requests& requests_;
  TurnWorker& turns_;
  shared_memory::Exports& exports_;
  const ExchangeTotals& totals_;
  const gate::PageSlot slot_;

  DeadlineReports deadlines_;
  Nanoseconds deadlines_read_{};

  Channel channel_;
  FileIdentity socket_;  // identifies the socket of channel_
  std::atomic<Backend> backend_{Backend::swap};
  std::atomic<bool> may_be_oversized_{false};
  std::atomic<std::int64_t> lost_since_{0};
  std::atomic<bool> silent_{false};
  std::atomic<std::uint64_t> words_{0};
  struct Nothing final : ReportSource {
    MemoryUse use() const override { return {}; }
  };
  const Nothing nothing_;
  std::atomic<const ReportSource*> reports_{&nothing_};
  Attach attach_;  // written once by set_gpu(), constant afterwards
  std::atomic<bool> has_gpu_{false};
  bool refused_ = false;
  // told_: the totals reported so far, on all connections. told_before_: the totals reported on earlier
  // connections.
  struct Totals {
    Traffic moved;
    Exchanges exchanges;
  };
  Totals told_;
  Totals told_before_;
  bool attached_ = false;    // true if Attached was received on this or an earlier connection
  bool reclaims_ = false;    // a claim is to be sent again, see send_claim()
  std::uint64_t order_ = 0;  // number of the last Revoke or Step of this arbiter
  bool released_ = false;    // Released was sent on this connection, and no Restore or Step has arrived since
};

}  // namespace sharedgpu::session
