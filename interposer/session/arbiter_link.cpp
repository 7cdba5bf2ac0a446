// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/arbiter_link.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "interposer/gate/closing.h"
#include "interposer/gate/gate.h"
#include "interposer/session/log.h"

namespace sharedgpu::session {

using gate::now;

namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kFirstBackoff = 10ms;
constexpr Nanoseconds kLongestBackoff = 1s;
constexpr Nanoseconds kAnswer = 5s;
constexpr std::chrono::milliseconds kLook = 200ms;         // longest time between checks of our descriptors
constexpr std::chrono::milliseconds kDeadlinePause = 1ms;  // shortest time between reads of the deadline pipe
constexpr std::uint64_t kNobody = ~std::uint64_t{0};       // the request number of a Usage whose Verdict no
                                                           // thread awaits
constexpr Bytes kEverything{~std::uint64_t{0}};

}  // namespace

void ArbiterLink::adopt(Handshake& hands) {
  channel_ = std::move(hands.channel);
  order_ = 0;  // no order of this arbiter has arrived yet
  released_ = false;
  told_before_ = told_;
  socket_ = FileIdentity(channel_.fd());
  words_.fetch_add(1, std::memory_order_release);
  turns_.set_epoch(hands.welcome.epoch);
  backend_.store(hands.welcome.backend, std::memory_order_relaxed);
  if (!gate::install(hands.page.get(), slot_)) {
    say("cannot map the lease page: %s", std::strerror(errno));
    channel_.close();
    return;
  }
  if (gate::is_open()) gate::hold();
}

void ArbiterLink::set_gpu(const Attach& attach, const ReportSource* reports) {
  attach_ = attach;
  if (reports != nullptr) reports_.store(reports, std::memory_order_release);
  has_gpu_.store(true, std::memory_order_release);
}

// While a thread requests a wider window, `now.beyond` is already smaller by `now.widening`. A message
// without a request must not report this smaller value. Otherwise, if the arbiter refuses, the next request
// for a smaller part looks like growth of away memory, and the arbiter would grant it without room on the
// GPU.
Usage ArbiterLink::usage(std::uint64_t request, bool stuck) const {
  const ReportSource::Reading now = reports().reading();
  const bool requests = request != 0 && request != kNobody;
  return {.request = request,
          .use = now.use,
          .stuck = stuck,
          .job_host_limit = reports().job_host_limit(),
          .moved = {},
          .away = requests ? now.beyond : now.beyond + now.widening,
          .exchanges = {},
          .uncharged = reports().uncharged()};
}

void ArbiterLink::run() {
  do {
    int error = serve();
    debug("arbiter lost: %s", std::strerror(error));
    disconnect();
  } while (!refused_ && reconnect());
}

int ArbiterLink::serve() {
  Doorbell& doorbell = outbox_.doorbell();
  for (;;) {
    if (!channel_) return ENOTCONN;
    if (int error = send_all()) return error;
    pollfd wanted[] = {{.fd = channel_.fd(), .events = POLLIN, .revents = 0},
                       {.fd = doorbell.fd(), .events = POLLIN, .revents = 0},
                       {.fd = deadlines_.fd(), .events = POLLIN, .revents = 0}};
    // A session that cannot report deadlines leaves the reports in the pipe, for other processes of the
    // tenant.
    const bool tells = deadlines_.fd() >= 0 && attached_ && channel_.version() >= Deadlines::kSince;
    const bool pauses = tells && now() - deadlines_read_ < kDeadlinePause;
    if (!tells || pauses) wanted[2].fd = -1;
    const auto patience = static_cast<int>((pauses ? kDeadlinePause : kLook).count());
    if (poll(wanted, 3, patience) < 0 && errno != EINTR) return errno;
    if (!socket_.is(channel_.fd())) return EBADF;
    if (!doorbell.intact()) doorbell.open();
    if (wanted[1].revents != 0) doorbell.silence();
    if (wanted[2].revents != 0)
      if (int error = report_deadlines()) return error;
    if (wanted[0].revents == 0) continue;
    Message message;
    UniqueFd descriptor;
    if (int error = channel_.receive(message, descriptor)) return error;
    words_.fetch_add(1, std::memory_order_release);
    if (silent_.exchange(false, std::memory_order_acq_rel)) debug("the arbiter answers again");
    handle(message, std::move(descriptor));
    if (refused_) return ECONNREFUSED;
  }
}

void ArbiterLink::disconnect() {
  if (socket_.is(channel_.fd()))
    channel_.close();
  else
    channel_.abandon();
}

void ArbiterLink::note_silence() {
  if (!silent_.exchange(true, std::memory_order_acq_rel)) debug("the arbiter does not answer");
}

// Sends a message, unless the program has closed our descriptor. After that, the descriptor's number may
// refer to a file of the program, to which we must not write.
int ArbiterLink::send(const Message& message, int descriptor) {
  return socket_.is(channel_.fd()) ? channel_.send(message, descriptor) : EBADF;
}

int ArbiterLink::send_all() {
  // Outbox::usage(true) sets the flag `stuck` before the flag `usage`, so this function must read `usage`
  // first. A flag that is set from here on wakes this thread again.
  const bool changed = outbox_.take(Outbox::Flag::usage);
  const bool stuck = outbox_.take(Outbox::Flag::stuck);
  if (changed || stuck)
    if (int error = tell(usage(0, stuck))) return error;
  if (int error = send_claim()) return error;
  while (const auto report = outbox_.take())
    if (int error = send_report(*report)) return error;
  for (Requests::Unsent unsent; requests_.next_unsent(unsent);)
    if (int error = send_request(unsent)) return error;
  // While the arbiter is silent, the requesting threads continue without an answer. Any answer to this query
  // shows that the arbiter has recovered.
  if (outbox_.take(Outbox::Flag::ping) || silent())
    if (int error = send(Message::of(MemoryQuery{}))) return error;
  if (outbox_.take(Outbox::Flag::want)) {
    const bool home = outbox_.take(Outbox::Flag::home);
    debug(home ? "host memory runs short: asks to restore the evicted memory" : "waiting at the gate");
    return send(Message::of(Want{.host_short = home}));
  }
  return 0;
}

// A claim requests growth that has already happened. While a thread requests growth, the claim includes this
// growth, too. So the arbiter may refuse the claim, or take it for a request for away memory. Therefore the
// claim is sent again when no thread requests growth.
int ArbiterLink::send_claim() {
  const bool grows = requests_.any(MessageType::usage);
  const bool claims = outbox_.take(Outbox::Flag::claim);
  if (!claims && (grows || !reclaims_)) return 0;
  reclaims_ = grows;
  return tell(usage(kNobody));
}

// Sends a Usage or Ready, with the totals minus those that were reported on earlier connections. An arbiter
// that does not know the field `exchanges` ignores it. The totals of exchanges then stay unreported until an
// arbiter knows the field.
template <class Body>
int ArbiterLink::tell(Body body) {
  Totals now = told_;
  now.moved = reports().moved();
  body.moved = minus(now.moved, told_before_.moved);
  if constexpr (requires { body.exchanges; }) {
    if (channel_.version() >= Body::kExchanges) now.exchanges = totals_.read();
    body.exchanges = minus(now.exchanges, told_before_.exchanges);
  }
  const int error = send(Message::of(body));
  if (error == 0) told_ = now;
  return error;
}

int ArbiterLink::send_request(const Requests::Unsent& unsent) {
  switch (unsent.question) {
    case MessageType::attach:
      return send(Message::of(attach_));
    case MessageType::usage:
      return tell(usage(unsent.id));
    case MessageType::borrow: {
      Borrow borrow = unsent.borrow;
      borrow.request = unsent.id;
      return send(Message::of(borrow));
    }
    case MessageType::refusal_query: {
      RefusalQuery query = unsent.refusal;
      query.request = unsent.id;
      if (channel_.version() >= RefusalQuery::kSince) return send(Message::of(query));
      requests_.answer(MessageType::refusal_query, unsent.id, Message::of(RefusalReply{}));
      return 0;
    }
    case MessageType::memory_query:
      return send(Message::of(MemoryQuery{.request = unsent.id}));
    default:
      return 0;  // not a request
  }
}

int ArbiterLink::send_report(const Report& report) {
  switch (report.type) {
    case MessageType::ready:
      return tell(Ready{.epoch = report.epoch, .use = reports().use()});
    case MessageType::released:
      if (report.order != order_) return 0;  // the order is outdated, or it came from an earlier arbiter
      // Another thread may be allocating. From here on, that thread must not get more device memory, since
      // the arbiter may grant the memory to other tenants.
      released_ = true;
      turns_.allow_at_most(reports().use().resident);
      return send(Message::of(Released{.epoch = report.epoch,
                                       .order = report.order,
                                       .wants = gate::wanted(),
                                       .overuse = report.span,
                                       .use = reports().use(),
                                       .submission = report.submission}));
    case MessageType::give_back:
      return channel_.version() < GiveBack::kSince ? 0 : send(Message::of(GiveBack{.epoch = report.epoch}));
    case MessageType::idle:
      return send(Message::of(Idle{.epoch = report.epoch, .idle = report.span}));
    default:
      return 0;  // not a report
  }
}

int ArbiterLink::report_deadlines() {
  deadlines_read_ = now();
  const Deadlines counts = deadlines_.take();
  if (counts.met + counts.missed == 0) return 0;
  return send(Message::of(counts));
}

// Sends a piece of exported memory to the importer. If sending fails, the importer notices this, because the
// connection is closed.
void ArbiterLink::send_piece(const Wanted& wanted, UniqueFd importer) {
  UniqueFd descriptor;
  const Message answer = Message::of(exports_.answer(wanted, descriptor));
  if (importer)
    Channel(static_cast<UniqueFd&&>(importer)).send(answer, descriptor.get());
  else
    // Before protocol version 9, the arbiter itself forwards the answer to the importer.
    send(answer, descriptor.get());
}

void ArbiterLink::handle(const Message& message, UniqueFd descriptor) {
  // Reads the gate's state from the lease page before the message lets a thread continue. After a grant that
  // takes effect only in the next turn, the thread must find the gate closed.
  gate::is_open();
  switch (message.type) {
    case MessageType::attached:
      attached_ = true;
      may_be_oversized_.store(message.as<Attached>().oversize != 0, std::memory_order_relaxed);
      return requests_.answer(MessageType::attach, 0, message);
    case MessageType::verdict:
      return decide(message);
    case MessageType::memory_view:
      return requests_.answer(MessageType::memory_query, message.as<MemoryView>().request, message);
    case MessageType::refusal_reply:
      return requests_.answer(MessageType::refusal_query, message.as<RefusalReply>().request, message);
    case MessageType::wanted:
      return send_piece(message.as<Wanted>(), static_cast<UniqueFd&&>(descriptor));
    case MessageType::lent:
      return requests_.answer(MessageType::borrow, message.as<Lent>().request, message,
                              std::move(descriptor));
    case MessageType::restore:
      return restore(message.as<Restore>());
    case MessageType::revoke:
      return revoke(message.as<Revoke>());
    case MessageType::step:
      return step(message.as<Step>());
    case MessageType::evict:
      turns_.allow(message.as<Evict>().allowed);
      return turns_.push({.kind = TurnOrder::Kind::evict, .epoch = turns_.epoch(), .since = now()});
    case MessageType::prepare: {
      auto prepare = message.as<Prepare>();
      return turns_.prepare_host(prepare.host, prepare.sharers);
    }
    case MessageType::others_wait:
      return turns_.look();
    case MessageType::cancelled: {
      auto cancelled = message.as<Cancelled>();
      cancelled.reason[sizeof cancelled.reason - 1] = '\0';
      return say("the arbiter ends this process: %s", cancelled.reason);
    }
    case MessageType::notice: {
      auto notice = message.as<Notice>();
      notice.text[sizeof notice.text - 1] = '\0';
      return mention("%s", notice.text);
    }
    case MessageType::refused: {
      auto refused = message.as<Refused>();
      refused.reason[sizeof refused.reason - 1] = '\0';
      give_up(refused.reason);
      refused_ = true;
      return;
    }
    default:
      debug("the arbiter sent message type %u, which is not for sessions",
            static_cast<unsigned>(message.type));
  }
}

// Acts on a Verdict. If the arbiter granted a higher resident limit before it received Released, the grant is
// no longer valid, and the limit must not be raised. If the gate is open, this session holds the lease, even
// if it has sent Released before.
void ArbiterLink::decide(const Message& message) {
  const auto verdict = message.as<Verdict>();
  const bool given_up = released_ && !gate::is_open();
  if (verdict.granted != 0) given_up ? turns_.allow_at_most(verdict.allowed) : turns_.allow(verdict.allowed);
  requests_.answer(MessageType::usage, verdict.request, message);
}

void ArbiterLink::restore(const Restore& restore) {
  turns_.set_epoch(restore.epoch);
  released_ = false;
  turns_.allow(restore.allowed);
  turns_.push({.kind = TurnOrder::Kind::restore, .epoch = restore.epoch, .since = now()});
}

void ArbiterLink::revoke(const Revoke& revoke) {
  order_ = revoke.order;
  turns_.push(
      {.kind = TurnOrder::Kind::revoke, .epoch = revoke.epoch, .number = revoke.order, .since = now()});
}

void ArbiterLink::step(const Step& step) {
  order_ = step.order;
  released_ = false;
  turns_.allow(step.allowed);
  turns_.push({.kind = TurnOrder::Kind::step, .epoch = step.epoch, .number = step.order, .since = now()});
}

bool ArbiterLink::reconnect() {
  lost_since_.store(now().count(), std::memory_order_release);
  for (Nanoseconds backoff = kFirstBackoff;; backoff = std::min(2 * backoff, kLongestBackoff)) {
    gate::nap(backoff);
    outbox_.forget();
    requests_.unsend();
    const MemoryUse mine = reports().use();
    Hello hello{.token = settings_.token,
                .resuming = 1,
                // Memory that was allocated during a drain has to become resident before the gate can open
                // again. Until then, the session does not report that it holds the lease.
                .held = gate::held() && (gate::is_open() || mine.resident >= mine.swappable),
                .wants = gate::wanted(),
                .backend = backend_.load(std::memory_order_relaxed),
                .epoch = turns_.epoch(),
                .gpu = has_gpu_.load(std::memory_order_acquire) ? attach_.gpu : GpuUuid{}};
    Handshake hands = try_hands(settings_.socket, hello, kAnswer);
    if (hands.result == Handshake::Result::refused) {
      give_up(hands.reason);
      return false;
    }
    if (hands.error == EPROTO || hands.error == EPROTONOSUPPORT) {
      give_up("the arbiter speaks another protocol");
      return false;
    }
    if (hands.result != Handshake::Result::welcome) continue;
    adopt(hands);
    if (!channel_ || resume() != 0) continue;
    debug("reconnected to the arbiter");
    silent_.store(false, std::memory_order_release);
    lost_since_.store(0, std::memory_order_release);
    return true;
  }
}

// Makes the process unmanaged: the turn thread restores evicted memory, and then the gate stays open.
void ArbiterLink::give_up(const char* reason) {
  say("the arbiter no longer serves this process (%s); the process continues with plain CUDA", reason);
  lost_since_.store(1, std::memory_order_release);  // stays nonzero, so no thread waits for answers any more
  turns_.allow(kEverything);
  turns_.prepare_host({}, 1);
  turns_.push({.kind = TurnOrder::Kind::go_plain, .epoch = turns_.epoch(), .since = now()});
}

int ArbiterLink::resume() {
  if (!has_gpu_.load(std::memory_order_acquire)) return 0;
  // Sends Attach even if the arbiter has never answered one, since the thread that requested the Attach may
  // have stopped waiting.
  if (int error = send(Message::of(attach_))) return error;
  return tell(usage(0));
}

}  // namespace sharedgpu::session
