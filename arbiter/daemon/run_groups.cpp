// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/run_groups.h"

#include <algorithm>
#include <asio/post.hpp>
#include <cerrno>
#include <utility>

#include "arbiter/daemon/log.h"
#include "arbiter/daemon/processes.h"
#include "config/quantities.h"
#include "protocol/host_memory.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::seconds kLookEvery{1};
// The maximum numbers of folders that are read: below CgroupParent, and above the group of a process.
constexpr std::size_t kMostFolders = 10'000;
constexpr std::size_t kMostAbove = 32;
constexpr std::string_view kPrefix = "run_";

// The highest use of host memory in the group; nullopt if it cannot be read. Linux before 5.19 lacks
// memory.peak in cgroup v2; there the result is the current use.
std::optional<Bytes> peak_in(const System& system, const std::string& group) {
  std::string text;
  for (const char* file : {"memory.max_usage_in_bytes", "memory.peak", "memory.current"})
    if (system.read_group(group, file, text).ok())
      if (const auto peak = host_memory::number(text)) return Bytes{*peak};
  return std::nullopt;
}

const char* limit_file(host_memory::Version version) { return host_memory::files_of(version).limits[0] + 1; }

bool is_within(const std::string& path, const std::string& group) {
  return path == group || path.starts_with(group + "/");
}

// Fails if the process has ended since it connected, because another process may have its pid now.
Status move(const System& system, const std::string& group, const ProcessName& process) {
  const auto pid = static_cast<pid_t>(process.pid);
  if (start_time_of(system, pid) != process.started) return Status::of_errno(ESRCH, group);
  return system.enter_group(group, pid);
}

}  // namespace

// The state of one group, as found by the thread that does the slow calls.
struct RunGroups::Look {
  TenantId tenant;
  std::string group;
  bool ended = false;
  std::optional<Bytes> peak = {};
  Status removed = {};  // the result of the removal if the run has ended
};

RunGroups::RunGroups(const Parts& parts) : its_(parts), timer_(parts.loop), aside_(parts.system.aside()) {}

// ---- the group of a process ----

std::optional<MemoryGroup> RunGroups::place_of(const Peer& peer) const {
  std::string text;
  if (!its_.system.read_file("/proc/" + std::to_string(peer.pid) + "/cgroup", text).ok()) return std::nullopt;
  return memory_group(text);
}

// Returns true if root has set a limit on a group of the process. Skips CgroupParent and the groups above it,
// because their limits also apply to the groups of runs. Ignores folders that users own, because users may
// change the limits of these folders.
bool RunGroups::is_confined(const MemoryGroup& place) const {
  std::size_t end = 0;
  for (std::size_t i = 0; i < kMostAbove && end < place.path.size(); ++i) {
    end = std::min(place.path.find('/', end + 1), place.path.size());
    const std::string above = place.path.substr(0, end);
    if (is_within(its_.parent, above)) continue;
    uid_t owner = 0;
    if (!its_.system.owner_of(its_.system.group_folder(above), owner).ok() || owner != 0) return false;
    for (const char* file : host_memory::files_of(place.version).limits) {
      std::string limit;
      if (file != nullptr && its_.system.read_group(above, file + 1, limit).ok() &&
          host_memory::limit_in(limit))
        return true;
    }
  }
  return false;
}

bool RunGroups::is_outside(const TenantInfo& tenant, const Peer& peer) const {
  if (tenant.group_limit == Bytes{}) return false;
  const auto place = place_of(peer);
  return !place || !is_within(place->path, group_of(tenant.id));
}

// Returns false if the process must stay in its group, and logs the reason once for each run.
bool RunGroups::may_move(TenantId tenant, const Peer& peer, const std::optional<MemoryGroup>& place) {
  const char* why = !place                ? "its memory control group is unknown"
                    : peer.step           ? "it is in a step of Slurm, which confines it"
                    : is_confined(*place) ? "a control group with a limit confines it already"
                                          : nullptr;
  if (why == nullptr) return true;
  const auto row = rows_.find(tenant);
  if (row != rows_.end() && std::exchange(row->second.told_stays, true)) return false;
  tell(peer, its_.tenants.label(tenant) + ": pid " + std::to_string(peer.pid) +
                 " does not enter a control group of the run: " + why);
  return false;
}

void RunGroups::tell(const Peer& peer, const std::string& what) const {
  its_.complaints.add(peer.account, Cause::group, what);
}

// ---- making and entering groups ----

// Records the group before making it, so that the next arbiter knows the group's tenant even if this arbiter
// dies in between.
void RunGroups::make(TenantInfo& tenant, Bytes limit, const Peer& peer, Done done) {
  const auto place = place_of(peer);
  if (!may_move(tenant.id, peer, place)) return done(false);
  tenant.group_limit = limit;
  its_.journal.record(GroupRecord{.tenant = tenant.id, .limit = limit});
  its_.journal.flush();
  rows_[tenant.id];
  aside_->run([this, id = tenant.id, limit, process = peer.process(), account = peer.account,
               file = limit_file(place->version), done = std::move(done)] {
    const std::string group = group_of(id);
    Status made = its_.system.make_group(group, file, std::to_string(limit.count));
    if (made.ok() && !(made = move(its_.system, group, process)).ok())
      static_cast<void>(its_.system.remove_group(group));
    asio::post(its_.loop, [this, id, limit, account, made, done] {
      if (made.ok()) {
        log::info(its_.tenants.label(id) + ": its processes may use " + format_size(limit) +
                  " of host memory, by control group " + group_of(id));
      } else {
        its_.complaints.add(account, Cause::group,
                            its_.tenants.label(id) + ": its host memory is not limited: " + made.message());
        rows_.erase(id);
        if (TenantInfo* its = its_.tenants.find(id)) {
          its->group_limit = {};
          its_.journal.record(GroupRecord{.tenant = id, .limit = {}});
          its_.journal.flush();
        }
      }
      look_soon();
      done(made.ok());
    });
  });
}

void RunGroups::enter(const TenantInfo& tenant, const Peer& peer, Done done) {
  if (tenant.group_limit == Bytes{}) return done(false);
  const auto place = place_of(peer);
  if (place && is_within(place->path, group_of(tenant.id))) return done(true);
  if (!may_move(tenant.id, peer, place)) return done(false);
  aside_->run(
      [this, id = tenant.id, process = peer.process(), account = peer.account, done = std::move(done)] {
        const Status moved = move(its_.system, group_of(id), process);
        asio::post(its_.loop, [this, id, pid = process.pid, account, moved, done] {
          if (!moved.ok() && moved.code() != ESRCH)
            its_.complaints.add(account, Cause::group,
                                its_.tenants.label(id) + ": pid " + std::to_string(pid) +
                                    " does not enter a control group of the run: " + moved.message());
          done(moved.ok());
        });
      });
}

// ---- groups of an earlier arbiter ----

void RunGroups::record_peaks() {
  for (const auto& [id, tenant] : its_.tenants.all())
    if (tenant.group_limit != Bytes{}) record_peak(id, peak_in(its_.system, group_of(id)));
}

// Also ensures that no later tenant gets the number of an existing group, even if the ledger is lost.
void RunGroups::restore() {
  const auto names = its_.system.list_folder(its_.system.group_folder(its_.parent), kMostFolders);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (!name.starts_with(kPrefix)) continue;
    const auto number = parse_number<std::uint64_t>(std::string_view(name).substr(kPrefix.size()));
    if (!number) continue;
    const TenantId id{*number};
    its_.tenants.skip_to(id);
    const TenantInfo* tenant = its_.tenants.find(id);
    rows_[id].ended = tenant == nullptr || tenant->group_limit == Bytes{};
  }
  look_soon();
}

// ---- removing groups ----

void RunGroups::record_peak(TenantId tenant, std::optional<Bytes> peak) {
  if (!peak || !its_.figures.note_host(tenant, *peak)) return;
  its_.journal.record(UsedRecord{.tenant = tenant, .step = {}, .figures = its_.figures.of(tenant)});
}

void RunGroups::ended(const TenantInfo& tenant) {
  const auto row = rows_.find(tenant.id);
  if (row == rows_.end()) return;
  record_peak(tenant.id, peak_in(its_.system, group_of(tenant.id)));
  row->second.ended = true;
  look();
}

void RunGroups::look_soon() {
  if (rows_.empty()) return;
  timer_.expires_after(kLookEvery);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) look();
  });
}

void RunGroups::look() {
  if (std::exchange(is_looking_, true)) return;
  std::vector<Look> looks;
  for (const auto& [id, row] : rows_)
    looks.push_back({.tenant = id, .group = group_of(id), .ended = row.ended});
  aside_->run([this, looks = std::move(looks)]() mutable {
    for (Look& each : looks) {
      each.peak = peak_in(its_.system, each.group);
      if (each.ended) each.removed = its_.system.remove_group(each.group);
    }
    asio::post(its_.loop, [this, looks = std::move(looks)] { take(looks); });
  });
}

// If the group of an ended run still has processes, the next check tries again to remove the group.
void RunGroups::take(const std::vector<Look>& looks) {
  is_looking_ = false;
  for (const Look& each : looks) {
    const auto row = rows_.find(each.tenant);
    if (row == rows_.end()) continue;
    if (its_.tenants.find(each.tenant) != nullptr) record_peak(each.tenant, each.peak);
    if (!each.ended) continue;
    if (each.removed.ok())
      rows_.erase(row);
    else if (each.removed.code() != EBUSY && !std::exchange(row->second.told, true))
      log::warning("cannot remove " + each.removed.message());
  }
  its_.journal.flush();
  look_soon();
}

}  // namespace sharedgpu
