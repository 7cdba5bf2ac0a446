// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/records.h"

#include <array>
#include <charconv>
#include <cstdio>

namespace sharedgpu {
namespace {

constexpr std::size_t kChecksumDigits = 8;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = value;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

class Writer {
 public:
  explicit Writer(Nanoseconds at) { number(at.count()); }
  Writer& word(std::string_view text) {
    text_ += ' ';
    text_ += text;
    return *this;
  }
  template <class Number>
  Writer& number(Number value) {
    return word(std::to_string(value));
  }
  // It has no blanks; one that is not known is a dash.
  Writer& name(const char* name) { return word(*name == '\0' ? "-" : name); }
  Writer& step(StepName step) { return number(step.job).number(step.step); }
  Writer& gpu(const GpuUuid& gpu) { return word(format_hex(gpu.bytes)); }

  void operator()(const BootRecord& r) { word("boot").word(r.boot_id).number(r.booted.count()); }
  void operator()(const TenantRecord& r) {
    word("tenant").number(r.tenant.value).number(r.uid);
    if (r.name.is_job())
      word("job").number(r.name.job);
    else if (r.name.is_run())
      word("run").word(format_hex(r.name.run.bytes));
    else
      word("process").number(r.name.process.pid).number(r.name.process.started);
  }
  void operator()(const OptionsRecord& r) {
    const JobOptions& o = r.options;
    word("options").number(r.tenant.value).number(o.memory.count).number(o.units).number(o.share_request);
    number(o.share_limit).number(o.priority).number(o.deadline.count()).number(unsigned(o.backend));
    number(unsigned(o.backend_given)).number(o.gpus);
  }
  void operator()(const ClassRecord& r) {
    word("class").number(r.tenant.value).name(r.job_class.partition).name(r.job_class.qos);
    number(r.job_class.restarts);
  }
  void operator()(const PlaceRecord& r) {
    word("place").number(r.tenant.value).number(r.pid).number(r.started).number(r.units);
    for (std::uint32_t i = 0; i < r.gpus.count; ++i) gpu(r.gpus.gpu[i]);
  }
  void operator()(const EndRecord& r) { word("end").number(r.tenant.value); }
  void operator()(const SessionRecord& r) {
    word("session")
        .number(r.session.value)
        .number(r.tenant.value)
        .step(r.step)
        .number(r.pid)
        .number(r.started);
    if (r.task) number(*r.task);
  }
  void operator()(const AttachRecord& r) { word("attach").number(r.session.value).gpu(r.gpu); }
  void operator()(const GoneRecord& r) { word("gone").number(r.session.value); }
  void operator()(const LeaseRecord& r) {
    word(r.grant ? "grant" : "release").number(r.epoch.value).number(r.key.tenant.value);
    gpu(r.key.gpu).step(r.key.step);
  }

  void operator()(const CheckpointRecord& r) {
    word("checkpoint").number(r.tenant.value).number(r.session.value).number(r.epoch.value);
  }
  void operator()(const CompleteRecord&) { word("complete"); }
  void operator()(const StepTimeRecord& r) {
    word("steptime").number(r.tenant.value).step(r.step).number(r.time.count());
  }
  void operator()(const GpuTimeRecord& r) {
    word("gputime").number(r.tenant.value).gpu(r.gpu).number(r.time.count());
  }
  void operator()(const UsedRecord& r) {
    const Figures& f = r.figures;
    word("used").number(r.tenant.value).step(r.step).number(f.moved.evicted.count);
    number(f.moved.restored.count).number(f.waited.count()).number(f.overuse.count()).number(f.handoffs);
    number(f.footprint.count).number(f.resident.count).number(f.backends);
  }
  void operator()(const BeginRecord& r) { word("begin").number(r.tenant.value); }
  void operator()(const OverRecord& r) { word("over").number(r.tenant.value); }
  void operator()(const SeenRecord&) { word("seen"); }
  void operator()(const LostRecord& r) { word("lost").number(r.records); }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Reads word by word; once something is wrong, everything after it is.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  std::string_view word() {
    if (rest_.empty() || rest_.front() != ' ') {
      good_ = false;
      return {};
    }
    rest_.remove_prefix(1);
    std::size_t end = std::min(rest_.find(' '), rest_.size());
    std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end);
    good_ = good_ && !text.empty();
    return text;
  }
  template <class Number>
  Reader& number(Number& value) {
    std::string_view text = word();
    auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    good_ = good_ && error == std::errc{} && rest == text.data() + text.size();
    return *this;
  }
  // Two of them can be added up and subtracted.
  Reader& time(Nanoseconds& time) {
    std::int64_t count = 0;
    number(count);
    good_ = good_ && count >= 0 && count < (1ll << 62);
    time = Nanoseconds(count);
    return *this;
  }
  Reader& name(char (&name)[JobClass::kLongest + 1]) {
    const std::string_view text = word();
    good_ = good_ && text.size() < sizeof name;
    if (good_ && text != "-") text.copy(name, text.size());
    return *this;
  }
  Reader& step(StepName& step) { return number(step.job).number(step.step); }
  Reader& hex(std::uint8_t (&bytes)[16]) {
    good_ = parse_hex(word(), bytes) && good_;
    return *this;
  }
  bool whole() const { return good_ && rest_.empty(); }
  bool more() const { return good_ && !rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

bool read_name(Reader& in, TenantName& name) {
  std::string_view kind = in.word();
  if (kind == "job")
    in.number(name.job);
  else if (kind == "run")
    in.hex(name.run.bytes);
  else if (kind == "process")
    in.number(name.process.pid).number(name.process.started);
  else
    return false;
  return true;
}

bool read_options(Reader& in, OptionsRecord& r) {
  std::int64_t deadline = 0;
  unsigned backend = 0;
  unsigned given = 0;
  JobOptions& o = r.options;
  in.number(r.tenant.value).number(o.memory.count).number(o.units).number(o.share_request);
  in.number(o.share_limit).number(o.priority).number(deadline).number(backend).number(given);
  if (in.more()) in.number(o.gpus);  // older ledgers do not have it
  o.deadline = Nanoseconds(deadline);
  o.backend = static_cast<Backend>(backend);
  o.backend_given = given != 0;
  return backend <= unsigned(Backend::native);
}

bool read_body(Reader& in, Record& record) {
  std::string_view kind = in.word();
  if (kind == "boot") {
    BootRecord r{.boot_id = std::string(in.word()), .booted = {}};
    if (in.more()) in.time(r.booted);  // older ledgers do not have it
    record.what = r;
  } else if (kind == "tenant") {
    TenantRecord r;
    in.number(r.tenant.value).number(r.uid);
    if (!read_name(in, r.name)) return false;
    record.what = r;
  } else if (kind == "options") {
    OptionsRecord r;
    if (!read_options(in, r)) return false;
    record.what = r;
  } else if (kind == "class") {
    ClassRecord r;
    in.number(r.tenant.value).name(r.job_class.partition).name(r.job_class.qos);
    in.number(r.job_class.restarts);
    record.what = r;
  } else if (kind == "place") {
    PlaceRecord r;
    in.number(r.tenant.value).number(r.pid).number(r.started).number(r.units);
    while (in.more() && r.gpus.count < GpuList::kMost) in.hex(r.gpus.gpu[r.gpus.count++].bytes);
    record.what = r;
  } else if (kind == "end") {
    EndRecord r;
    in.number(r.tenant.value);
    record.what = r;
  } else if (kind == "session") {
    SessionRecord r;
    in.number(r.session.value).number(r.tenant.value).step(r.step).number(r.pid).number(r.started);
    if (in.more()) in.number(r.task.emplace());
    record.what = r;
  } else if (kind == "attach") {
    AttachRecord r;
    in.number(r.session.value).hex(r.gpu.bytes);
    record.what = r;
  } else if (kind == "gone") {
    GoneRecord r;
    in.number(r.session.value);
    record.what = r;
  } else if (kind == "grant" || kind == "release") {
    LeaseRecord r{.grant = kind == "grant", .epoch = {}, .key = {}};
    in.number(r.epoch.value).number(r.key.tenant.value).hex(r.key.gpu.bytes).step(r.key.step);
    record.what = r;
  } else if (kind == "checkpoint") {
    CheckpointRecord r;
    in.number(r.tenant.value).number(r.session.value).number(r.epoch.value);
    record.what = r;
  } else if (kind == "complete") {
    record.what = CompleteRecord{};
  } else if (kind == "steptime") {
    StepTimeRecord r;
    in.number(r.tenant.value).step(r.step).time(r.time);
    record.what = r;
  } else if (kind == "gputime") {
    GpuTimeRecord r;
    in.number(r.tenant.value).hex(r.gpu.bytes).time(r.time);
    record.what = r;
  } else if (kind == "used") {
    UsedRecord r;
    Figures& f = r.figures;
    in.number(r.tenant.value).step(r.step).number(f.moved.evicted.count).number(f.moved.restored.count);
    in.time(f.waited).time(f.overuse).number(f.handoffs).number(f.footprint.count).number(f.resident.count);
    if (in.more()) in.number(f.backends);  // older ledgers do not have it
    record.what = r;
  } else if (kind == "begin") {
    BeginRecord r;
    in.number(r.tenant.value);
    record.what = r;
  } else if (kind == "over") {
    OverRecord r;
    in.number(r.tenant.value);
    record.what = r;
  } else if (kind == "seen") {
    record.what = SeenRecord{};
  } else if (kind == "lost") {
    LostRecord r;
    in.number(r.records);
    record.what = r;
  } else {
    return false;
  }
  return in.whole();
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t value = ~0u;
  for (char c : data) value = (value >> 8) ^ kCrcTable[(value ^ static_cast<unsigned char>(c)) & 0xff];
  return ~value;
}

std::string format_hex(const std::uint8_t (&bytes)[16]) {
  std::string text;
  for (std::uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool parse_hex(std::string_view text, std::uint8_t (&bytes)[16]) {
  if (text.size() != 32) return false;
  for (std::size_t i = 0; i < 16; ++i) {
    auto [rest, error] = std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, bytes[i], 16);
    if (error != std::errc{} || rest != text.data() + 2 * i + 2) return false;
  }
  return true;
}

std::string format_record(const Record& record) {
  Writer writer(record.at);
  std::visit(writer, record.what);
  char checksum[kChecksumDigits + 1];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(writer.text()));
  return checksum + writer.text() + "\n";
}

std::optional<Record> parse_record(std::string_view line) {
  if (line.size() <= kChecksumDigits) return std::nullopt;
  std::uint32_t checksum = 0;
  auto [rest, error] = std::from_chars(line.data(), line.data() + kChecksumDigits, checksum, 16);
  std::string_view text = line.substr(kChecksumDigits);
  if (error != std::errc{} || rest != line.data() + kChecksumDigits || checksum != crc32c(text))
    return std::nullopt;
  Reader reader(text);
  Record record;
  reader.time(record.at);
  if (!read_body(reader, record)) return std::nullopt;
  return record;
}

}  // namespace sharedgpu
