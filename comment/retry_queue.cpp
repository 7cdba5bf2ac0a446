// SPDX-License-Identifier: GPL-2.0-or-later
#include "comment/retry_queue.h"

#include <algorithm>

namespace sharedgpu {
namespace {

constexpr std::int64_t kLongestOutagePause = 60;
constexpr std::int64_t kLongestRunPause = 300;
// Age in seconds at which an entry is dropped. At this age, the job's end has probably been lost on its way
// to the database, or the database does not permit this node to change records.
constexpr std::int64_t kOldest = 30 * 24 * 3600;

std::optional<std::size_t> find_run(const std::vector<JobRecord>& runs, Span seen) {
  std::vector<Span> spans;
  for (const JobRecord& run : runs) spans.push_back(run.span);
  return run_of(spans, seen);
}

}  // namespace

bool RetryQueue::pass(std::int64_t now) {
  std::vector<std::string> names = spool_.entries();
  std::erase_if(progress_, [&](const auto& entry) {
    return !std::binary_search(names.begin(), names.end(), entry.first);
  });
  // Begins after the entry that failed last, so that all other entries are tried first: perhaps only that
  // entry fails.
  std::rotate(names.begin(), std::upper_bound(names.begin(), names.end(), failed_), names.end());
  for (const std::string& name : names) {
    Progress& progress = progress_[name];
    if (now >= progress.due && now >= database_.due) attend(name, progress, now);
  }
  return !spool_.entries().empty();
}

void RetryQueue::attend(const std::string& name, Progress& progress, std::int64_t now) {
  const std::optional<SpoolEntry> entry = spool_.read(name);
  if (!entry) {
    later(progress, now, kLongestRunPause);
    if (progress.pause == 2) say_(spool_.folder() + "/" + name + ": cannot be read; the file is kept");
    return;
  }
  std::string error;
  const std::vector<JobRecord> runs = records_.runs(entry->job, error);
  Merged merged;
  const std::optional<std::size_t> run = find_run(runs, entry->seen);
  if (error.empty() && run && runs[*run].span.end != 0) {
    const JobRecord& record = runs[*run];
    const CommentField field = field_for(record.comment, record.system_comment, field_);
    const bool admin = field == CommentField::admin;
    merged = add_share(admin ? record.comment : record.system_comment, entry->share);
    if (merged.outcome == Merged::Outcome::refused)
      return drop(name, std::string(admin ? "AdminComment" : "SystemComment") +
                            " has no room, or has a value of another program under the name sharedgpu");
    if (merged.outcome == Merged::Outcome::changed)
      error = records_.write(entry->job, record, field, merged.text);
  }
  if (!error.empty()) {
    if (error != trouble_) say_(error + "; retrying");
    trouble_ = error;
    if (now - entry->seen.end > kOldest) drop(name, error);
    failed_ = name;
    return later(database_, now, kLongestOutagePause);
  }
  database_ = {};
  if (name == failed_) {
    say_("the database answers again");
    failed_.clear();
    trouble_.clear();
  }
  if (!run || runs[*run].span.end == 0) {
    if (now - entry->seen.end > kOldest) return drop(name, "the job's end never reached the database");
    return later(progress, now, kLongestRunPause);
  }
  if (merged.outcome == Merged::Outcome::changed) {
    // Checks again soon, but only after other nodes have finished their writes: a node that read the comment
    // before this write overwrites this entry.
    progress = {.due = now + 2 + static_cast<std::int64_t>(dice_() % 4)};
    return;
  }
  if (progress.found == 0) progress.found = now;
  if (now - progress.found >= settle_.count()) return spool_.remove(name);
  progress.due = progress.found + settle_.count();
}

void RetryQueue::later(Progress& progress, std::int64_t now, std::int64_t longest) {
  const auto spread = static_cast<std::int64_t>(dice_() % static_cast<std::uint64_t>(progress.pause));
  progress.due = now + progress.pause + spread / 2;
  progress.pause = std::min(2 * progress.pause, longest);
}

void RetryQueue::drop(const std::string& name, const std::string& why) {
  say_(spool_.folder() + "/" + name + ": given up: " + why);
  spool_.remove(name);
}

bool RetryQueue::has_ended(const Spool::Mark& mark) {
  std::string error;
  const std::vector<JobRecord> runs = records_.runs(mark.job, error);
  const auto run = find_run(runs, {.begin = mark.since, .end = mark.since});
  return run && runs[*run].span.end != 0;
}

}  // namespace sharedgpu
