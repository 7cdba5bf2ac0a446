// SPDX-License-Identifier: GPL-2.0-or-later
// Uses only public headers of Slurm (22.05 to 26.05). slurmdbd lets only root, SlurmUser, and Slurm's
// administrators and operators change an AdminComment or a SystemComment.
#include "comment/slurmdb_records.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>

#include "slurm_shared/abi/release.h"

extern "C" {
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>
}

namespace sharedgpu {
namespace {

// Returns slurm.conf as parsed by Slurm's library. The library exports the variable `slurm_conf`, but its
// header declares only the type.
slurm_conf_t* configuration() { return static_cast<slurm_conf_t*>(dlsym(RTLD_DEFAULT, "slurm_conf")); }

// A list of Slurm's type with one item, which the list does not own.
class Borrowed {
 public:
  explicit Borrowed(void* item) : list_(slurm_list_create(nullptr)) { slurm_list_append(list_, item); }
  ~Borrowed() { slurm_list_destroy(list_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  auto get() const { return list_; }

 private:
  decltype(slurm_list_create(nullptr)) list_;
};

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

std::string error_text(const char* what) {
  const int error = errno;
  return std::string("slurmdbd: ") + what + ": " + (error != 0 ? slurm_strerror(error) : "no answer");
}

// A database condition that selects one job of this cluster.
class Condition {
 public:
  explicit Condition(std::uint32_t job) {
    step_.array_task_id = NO_VAL;
    step_.het_job_offset = NO_VAL;
    step_.step_id.job_id = job;
    step_.step_id.step_id = NO_VAL;
    step_.step_id.step_het_comp = NO_VAL;
    condition.cluster_list = cluster_.get();
    condition.step_list = steps_.get();
    condition.db_flags = SLURMDB_JOB_FLAG_NOTSET;
    // Excludes the other components of a heterogeneous job, which are separate jobs for sharedgpu.
    condition.flags = JOBCOND_FLAG_NO_STEP | JOBCOND_FLAG_NO_TRUNC | JOBCOND_FLAG_NO_DEFAULT_USAGE |
                      JOBCOND_FLAG_NO_WHOLE_HETJOB;
  }
  // Narrows the condition to the array element of this record. The job's number alone may select the whole
  // array, since one element has the array's number as its job number.
  void narrow(const slurmdb_job_rec_t& record) {
    if (record.array_job_id == 0 || record.array_task_id == NO_VAL) return;
    step_.step_id.job_id = record.array_job_id;
    step_.array_task_id = record.array_task_id;
  }

  slurmdb_job_cond_t condition = {};

 private:
  slurm_selected_step_t step_ = {};
  Borrowed steps_{&step_};
  Borrowed cluster_{configuration()->cluster_name};
};

// Calls `visit` with each record that the condition finds. Returns an empty string, or an error.
template <class Visit>
std::string for_each_record(void* connection, slurmdb_job_cond_t& condition, Visit visit) {
  errno = 0;
  auto* records = slurmdb_jobs_get(connection, &condition);
  if (records == nullptr) return error_text("cannot read jobs");
  auto* iterator = slurm_list_iterator_create(records);
  while (auto* record = static_cast<slurmdb_job_rec_t*>(slurm_list_next(iterator))) visit(*record);
  slurm_list_iterator_destroy(iterator);
  slurm_list_destroy(records);
  return {};
}

}  // namespace

SlurmdbRecords::SlurmdbRecords() { slurm_init(nullptr); }

SlurmdbRecords::~SlurmdbRecords() {
  disconnect();
  slurm_fini();
}

bool SlurmdbRecords::any() const {
  const slurm_conf_t* slurm = configuration();
  return slurm != nullptr && slurm->cluster_name != nullptr && slurm->accounting_storage_type != nullptr &&
         std::strstr(slurm->accounting_storage_type, "slurmdbd") != nullptr;
}

void SlurmdbRecords::disconnect() {
  if (connection_ != nullptr) slurmdb_connection_close(&connection_);
  connection_ = nullptr;
}

std::string SlurmdbRecords::connect() {
  if (connection_ != nullptr) return {};
  errno = 0;
  connection_ = slurmdb_connection_get(nullptr);
  if (connection_ == nullptr || errno != 0) {
    std::string error = error_text("cannot connect");
    disconnect();
    return error;
  }
  return {};
}

std::vector<JobRecord> SlurmdbRecords::runs(std::uint32_t job, std::string& error) {
  std::vector<JobRecord> runs;
  if (error = connect(); !error.empty()) return runs;
  Condition named(job);
  named.condition.flags |= JOBCOND_FLAG_DUP;
  error = for_each_record(connection_, named.condition, [&](const slurmdb_job_rec_t& record) {
    // Ignores runs that never started.
    if (record.jobid != job || record.start == 0) return;
    runs.push_back({.span = {.begin = record.start, .end = record.end},
                    .state = record.state,
                    .comment = text_of(record.admin_comment),
                    .system_comment = text_of(record.system_comment)});
  });
  if (!error.empty()) disconnect();
  return runs;
}

// slurmdbd changes all records that match a condition, and no condition can name a record's key. So the
// condition has the job, the state and the time at which the run ended (in seconds). Before the change, this
// function checks that only one record matches.
std::string SlurmdbRecords::write(std::uint32_t job, const JobRecord& run, CommentField field,
                                  const std::string& text) {
  if (std::string error = connect(); !error.empty()) return error;
  Condition named(job);
  std::string state = std::to_string(run.state);
  const Borrowed states(state.data());
  named.condition.state_list = states.get();
  named.condition.usage_start = named.condition.usage_end = run.span.end;
  unsigned found = 0;
  unsigned others = 0;
  const auto count = [&](const slurmdb_job_rec_t& record) {
    const bool is_it = record.jobid == job && record.end == run.span.end && record.state == run.state;
    ++(is_it ? found : others);
    if (is_it) named.narrow(record);
  };
  std::string error = for_each_record(connection_, named.condition, count);
  if (error.empty() && others > 0) {
    found = others = 0;
    error = for_each_record(connection_, named.condition, count);
  }
  if (error.empty() && (found != 1 || others != 0))
    error = "slurmdbd: job " + std::to_string(job) + " cannot be identified: several records match";
  if (error.empty()) {
    slurmdb_job_rec_t change = {};
    std::string value = text;
    (field == CommentField::admin ? change.admin_comment : change.system_comment) = value.data();
    change.derived_ec = NO_VAL;
    errno = 0;
    auto* changed = slurmdb_job_modify(connection_, &named.condition, &change);
    if (changed == nullptr) error = error_text(("cannot change job " + std::to_string(job)).c_str());
    if (changed != nullptr) slurm_list_destroy(changed);
    if (error.empty() && slurmdb_connection_commit(connection_, true) != SLURM_SUCCESS)
      error = error_text("cannot commit");
  }
  if (!error.empty()) disconnect();
  return error;
}

}  // namespace sharedgpu
