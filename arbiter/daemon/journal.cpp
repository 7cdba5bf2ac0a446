// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/journal.h"

#include <algorithm>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/processes.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::seconds kRetry{1};
// The interval of the records that show how long leases are held. If the host crashes, only a few seconds of
// lease time are lost. If a job ends while no arbiter runs, the lease time since the last record is lost.
constexpr std::chrono::seconds kSeenEvery{1};

Ledger::Limits limits_of(const Settings& settings) {
  return {.size = settings.ledger_size.count, .files = settings.ledger_files};
}

}  // namespace

Journal::Journal(asio::io_context& loop, const System& system, FigureBook& figures, const Settings& settings,
                 std::unique_ptr<FileCalls> files)
    : system_(system),
      figures_(figures),
      path_(settings.state_dir + "/ledger"),
      ledger_(
          limits_of(settings), [&system](pid_t pid) { return known_start_time_of(system, pid); },
          std::move(files)),
      retry_timer_(loop),
      seen_timer_(loop) {}

Status Journal::open(const std::function<void(const Record&)>& past) {
  Ledger::Replay replay;
  Status opened = ledger_.open(path_, past, replay);
  if (opened.ok() && replay.damaged > 0)
    log::warning(path_ + ": passed over " + std::to_string(replay.damaged) + " damaged lines of " +
                 std::to_string(replay.damaged + replay.records));
  if (opened.ok() && replay.unknown > 0)
    log::info(path_ + ": passed over " + std::to_string(replay.unknown) + " records of a newer version");
  return opened;
}

void Journal::set_limits(const Settings& settings) { ledger_.set_limits(limits_of(settings)); }

void Journal::record(const Record& record) {
  ledger_.append(record);
  last_record_ = record.at;
}

void Journal::flush() {
  for (const std::string& complaint : ledger_.take_complaints()) log::error(path_ + ": " + complaint);
  if (ledger_.unwritten() == 0 || failing_) return;
  const Status flushed = ledger_.flush();
  if (flushed.ok()) return;
  log::error(flushed.message() + "; records are kept in memory and written when that is possible");
  retry_later();
}

void Journal::retry_later() {
  failing_ = true;
  retry_timer_.expires_after(kRetry);
  retry_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    failing_ = false;
    flush();
    if (!failing_) log::info(path_ + ": written again");
  });
}

RecordedActions Journal::write_down(Actions actions) {
  for (const Action& action : actions)
    if (const auto* lease = std::get_if<RecordLease>(&action)) {
      record(Record{.at = lease->at,
                    .what = LeaseRecord{.grant = lease->grant, .epoch = lease->epoch, .key = lease->key}});
      const EnergyBook::Key on_gpu{lease->key.tenant, lease->key.gpu};
      if (lease->grant)
        figures_.energy().grant(on_gpu, lease->at);
      else
        figures_.energy().release(on_gpu, lease->at);
    }
  flush();
  return RecordedActions(std::move(actions));
}

void Journal::observe(const Sighting& seen, Nanoseconds at) {
  figures_.observe(seen, at);
  for (const auto& [key, value] : figures_.take_news(at))
    record(Record{.at = at, .what = UsedRecord{.tenant = key.first, .step = key.second, .figures = value}});
}

void Journal::read_energy(const GpuUuid& gpu, Energy counter) {
  const Nanoseconds at = system_.now();
  figures_.energy().read(gpu, counter, at);
  record_energy(at);
}

void Journal::record_energy(Nanoseconds at) {
  for (const auto& [key, energy] : figures_.energy().take_news(at))
    record(Record{.at = at, .what = EnergyRecord{.tenant = key.first, .gpu = key.second, .energy = energy}});
}

void Journal::watch_leases(const Core& core) {
  if (watches_leases_ || core.leases().open().empty()) return;
  watches_leases_ = true;
  seen_timer_.expires_after(kSeenEvery);
  seen_timer_.async_wait([this, &core](const asio::error_code& error) {
    if (error) return;
    watches_leases_ = false;
    const Nanoseconds at = system_.now();
    observe(core.sighting(), at);
    if (at - last_record_ >= kSeenEvery && !core.leases().open().empty()) {
      record(Record{.at = at, .what = SeenRecord{}});
      flush();
    }
    watch_leases(core);
  });
}

void Journal::end(const Core& core) {
  figures_.hasten();
  observe(core.sighting(), system_.now());
  record_energy(system_.now());
  flush();
}

bool Journal::may_write(uid_t uid) { return uid == 0 || writers_.take(uid, system_.now()); }

}  // namespace sharedgpu
