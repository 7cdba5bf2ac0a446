// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/refusal_text.h"

#include <algorithm>
#include <cstdio>

#include "protocol/host_memory.h"

namespace sharedgpu::session {
namespace {

using Size = unsigned long long;

Size in_mebibytes(Bytes size) { return size.count / mebibytes(1).count; }

// A value of an option: "480M" or "26G", rounded up.
struct Value {
  Size number;
  char unit;
};
Value rounded_up(Bytes size) {
  const bool small = size < gibibytes(10);
  const std::uint64_t unit = small ? mebibytes(1).count : gibibytes(1).count;
  return {std::max<Size>(size.count / unit + (size.count % unit == 0 ? 0 : 1), 1), small ? 'M' : 'G'};
}

// printf formats that name an option of the batch system with its value.
struct Words {
  const char* memory;  // takes a number and the letter of its unit
  const char* units;   // takes a number
  bool small = false;  // the unit's letter is in lower case
};
Words words_of(BatchSystem batch) {
  switch (batch) {
    case BatchSystem::slurm:
      return {"--mem=%llu%c", "--gres=sharedgpu:%llu"};
    case BatchSystem::torque:
      return {"-l mem=%llu%cb", "-l gres=sharedgpu:%llu", true};
    case BatchSystem::openpbs:
      return {"-l mem=%llu%cb", "-l sharedgpu=%llu", true};
    case BatchSystem::run:
      return {"sharedgpu run --host-memory=%llu%c", "sharedgpu run --units=%llu"};
    case BatchSystem::none:
      break;
  }
  return {"a limit of %llu%c for its cgroup's memory", "sharedgpu run --units=%llu"};
}

class Writer {
 public:
  explicit Writer(RefusalText& text) : text_(text) {}
  template <class... Values>
  void add(const char* format, Values... values) {
    // All formats are literals in this file.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    const int length = std::snprintf(text_.text + used_, sizeof text_.text - used_, format, values...);
#pragma GCC diagnostic pop
    used_ = std::min(used_ + static_cast<std::size_t>(std::max(length, 0)), sizeof text_.text - 1);
  }

 private:
  RefusalText& text_;
  std::size_t used_ = 0;
};

constexpr char kMeanwhile[] = " could never hold more than %llu MiB of it while other jobs have the GPU; ";

// The job's limit must suffice for the job's own data and for the evicted memory. If the site uses the
// job_submit plugin, the plugin adds the memory of the units to the memory that the user states in the
// option. So the job gets at least this limit.
void describe_job(Writer& writer, const RefusalReply& why, Bytes host_used, const Words& words) {
  writer.add("this job's host memory");
  writer.add(kMeanwhile, in_mebibytes(why.most));
  if (why.needed == Bytes{}) return writer.add("request more host memory");
  const Bytes limit = host_memory::limit_for(why.needed + minus(host_used, why.host));
  const bool units_bring = why.brought != Bytes{} && host_memory::limit_for(why.most) >= why.brought;
  const Value value = rounded_up(units_bring ? minus(limit, why.brought) : limit);
  writer.add("request ");
  writer.add(words.memory, value.number, words.small ? value.unit - 'A' + 'a' : value.unit);
  if (units_bring) writer.add(" beside the %llu MiB of its units", in_mebibytes(why.brought));
}

void describe_units(Writer& writer, const RefusalReply& why, const Words& words) {
  writer.add("the host memory of this job's units");
  writer.add(kMeanwhile, in_mebibytes(why.most));
  if (why.units == 0)
    return writer.add("no option helps, since it needs %llu MiB, and all units of this node bring less",
                      in_mebibytes(why.needed));
  writer.add("request ");
  writer.add(words.units, static_cast<Size>(why.units));
}

void describe_own(Writer& writer, const RefusalReply& why, BatchSystem batch) {
  const Value value = rounded_up(why.needed);
  writer.add("this job limits itself to %llu MiB; request ", in_mebibytes(why.most));
  writer.add(batch == BatchSystem::slurm ? "--sharedgpu-memory=%llu%c" : "sharedgpu run --memory=%llu%c",
             value.number, value.unit);
}

}  // namespace

RefusalText describe(const RefusalReply& why, Bytes host_used, BatchSystem batch) {
  RefusalText text;
  Writer writer(text);
  writer.add("device memory refused: ");
  const Words words = words_of(batch);
  if (why.bound == Bound::units)
    describe_units(writer, why, words);
  else if (why.bound == Bound::own)
    describe_own(writer, why, batch);
  else if (why.bound == Bound::gpu)
    writer.add("no option helps, since the program needs %llu MiB on a GPU of %llu MiB",
               in_mebibytes(why.needed), in_mebibytes(why.most));
  else
    describe_job(writer, why, host_used, words);
  return text;
}

}  // namespace sharedgpu::session
