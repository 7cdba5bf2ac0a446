// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/records.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
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

template <class What>
constexpr bool kHasTwoKinds = std::size(What::kKinds) == 2;

// A visitor that writes each field as a word, after a blank.
class LineWriter {
 public:
  void word(std::string_view text) {
    text_ += ' ';
    text_ += text;
  }
  template <std::integral Number>
  void operator()(const char*, Number value) {
    word(std::to_string(value));
  }
  template <class Tag>
  void operator()(const char* name, Id<Tag> id) {
    (*this)(name, id.value);
  }
  void operator()(const char* name, Bytes size) { (*this)(name, size.count); }
  void operator()(const char* name, Nanoseconds time) { (*this)(name, time.count()); }
  void operator()(const char* name, Backend backend) { (*this)(name, static_cast<unsigned>(backend)); }
  void operator()(const char*, const std::string& text) { word(text); }
  // Writes a text without blanks, or a dash if the text is unknown.
  void operator()(const char*, const char (&text)[JobClass::kLongest + 1]) {
    word(*text == '\0' ? "-" : text);
  }
  void operator()(const char* name, StepName step) {
    (*this)(name, step.job);
    (*this)(name, step.step);
  }
  void operator()(const char*, const GpuUuid& gpu) { hex(gpu.bytes); }
  void operator()(const char* name, const GpuList& gpus) {
    for (std::uint32_t i = 0; i < gpus.count; ++i) (*this)(name, gpus.gpu[i]);
  }
  void operator()(const char* name, const TenantName& tenant) {
    if (tenant.is_job()) {
      word("job");
      (*this)(name, tenant.job);
    } else if (tenant.is_run()) {
      word("run");
      hex(tenant.run.bytes);
    } else {
      word("process");
      (*this)(name, tenant.process.pid);
      (*this)(name, tenant.process.started);
    }
  }
  void newer(const char* name, auto value) {
    const std::size_t before = text_.size();
    (*this)(name, value);
    zeros_ = value == decltype(value){} ? zeros_ + text_.size() - before : 0;
  }
  void unbounded(const char* name, Nanoseconds time) { (*this)(name, time); }
  void where_known(const char* name, const auto& value) {
    if (value) (*this)(name, *value);
  }

  std::string text() const { return text_.substr(0, text_.size() - zeros_); }

 private:
  void hex(const std::uint8_t (&bytes)[16]) {
    constexpr char kDigits[] = "0123456789abcdef";
    text_ += ' ';
    for (const std::uint8_t byte : bytes) {
      text_ += kDigits[byte >> 4];
      text_ += kDigits[byte & 15];
    }
  }

  std::string text_;
  std::size_t zeros_ = 0;  // length of the zero fields at the end of the line that newer() wrote; text()
                           // omits these fields
};

// A visitor that reads each field from the next word of a line. After an error, end() returns false.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  std::string_view word() {
    if (rest_.empty() || rest_.front() != ' ') {
      good_ = false;
      return {};
    }
    rest_.remove_prefix(1);
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end);
    good_ = good_ && !text.empty();
    return text;
  }
  template <std::integral Number>
  void operator()(const char*, Number& value) {
    number(word(), value, 10);
  }
  // A flag: any non-zero number sets it.
  void operator()(const char* name, std::uint8_t& flag) {
    unsigned value = 0;
    (*this)(name, value);
    flag = value != 0;
  }
  template <class Tag>
  void operator()(const char* name, Id<Tag>& id) {
    (*this)(name, id.value);
  }
  void operator()(const char* name, Bytes& size) { (*this)(name, size.count); }
  // The limit ensures that the sum and the difference of two times do not overflow.
  void operator()(const char* name, Nanoseconds& time) {
    unbounded(name, time);
    good_ = good_ && time.count() >= 0 && time.count() < (1ll << 62);
  }
  void operator()(const char* name, Backend& backend) {
    unsigned value = 0;
    (*this)(name, value);
    good_ = good_ && value <= static_cast<unsigned>(Backend::native);
    if (good_) backend = static_cast<Backend>(value);
  }
  void operator()(const char*, std::string& text) { text = word(); }
  void operator()(const char*, char (&text)[JobClass::kLongest + 1]) {
    const std::string_view name = word();
    good_ = good_ && name.size() < sizeof text;
    if (good_ && name != "-") name.copy(text, name.size());
  }
  void operator()(const char* name, StepName& step) {
    (*this)(name, step.job);
    (*this)(name, step.step);
  }
  void operator()(const char*, GpuUuid& gpu) { hex(gpu.bytes); }
  void operator()(const char* name, GpuList& gpus) {
    while (more() && gpus.count < GpuList::kMost) (*this)(name, gpus.gpu[gpus.count++]);
    good_ = good_ && rest_.empty();
  }
  void operator()(const char* name, TenantName& tenant) {
    const std::string_view kind = word();
    if (kind == "job") {
      (*this)(name, tenant.job);
    } else if (kind == "run") {
      hex(tenant.run.bytes);
    } else if (kind == "process") {
      (*this)(name, tenant.process.pid);
      (*this)(name, tenant.process.started);
    } else {
      good_ = false;
    }
  }
  void newer(const char* name, auto& value) {
    if (more()) (*this)(name, value);
  }
  void unbounded(const char* name, Nanoseconds& time) {
    std::int64_t count = 0;
    (*this)(name, count);
    time = Nanoseconds(count);
  }
  void where_known(const char* name, auto& value) {
    if (more()) (*this)(name, value.emplace());
  }

  // Skips fields that this version does not know. Returns true if all known fields could be read.
  bool end() {
    while (more()) word();
    return good_;
  }

 private:
  bool more() const { return good_ && !rest_.empty(); }
  template <class Number>
  void number(std::string_view text, Number& value, int base) {
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    good_ = good_ && error == std::errc{} && rest == text.data() + text.size();
  }
  void hex(std::uint8_t (&bytes)[16]) {
    const std::string_view text = word();
    good_ = good_ && text.size() == 2 * sizeof bytes;
    for (std::size_t i = 0; good_ && i < sizeof bytes; ++i) number(text.substr(2 * i, 2), bytes[i], 16);
  }

  std::string_view rest_;
  bool good_ = true;
};

// Reads a record of this type if `word` names one of its kinds.
template <class What>
bool read_if(std::string_view word, LineReader& line, Record& record) {
  const auto kind = std::find_if(std::begin(What::kKinds), std::end(What::kKinds),
                                 [word](const RecordKind& each) { return each.word == word; });
  if (kind == std::end(What::kKinds)) return false;
  What& what = record.what.emplace<What>();
  if constexpr (kHasTwoKinds<What>) what.grant = kind == std::begin(What::kKinds);
  What::fields(line, what);
  return line.end();
}

template <class... Whats>
bool is_known_kind(std::string_view word, const std::variant<Whats...>&) {
  const auto is_of = [word](const auto& kinds) {
    return std::any_of(std::begin(kinds), std::end(kinds),
                       [word](const RecordKind& each) { return each.word == word; });
  };
  return (is_of(Whats::kKinds) || ...);
}

// Returns the part of a line that its checksum covers; nullopt if the checksum is wrong.
std::optional<std::string_view> checked_part(std::string_view line) {
  if (line.size() <= kChecksumDigits) return std::nullopt;
  std::uint32_t checksum = 0;
  auto [rest, error] = std::from_chars(line.data(), line.data() + kChecksumDigits, checksum, 16);
  const std::string_view text = line.substr(kChecksumDigits);
  if (error != std::errc{} || rest != line.data() + kChecksumDigits || checksum != crc32c(text))
    return std::nullopt;
  return text;
}

template <class... Whats>
bool read_any(LineReader& line, Record& record, const std::variant<Whats...>&) {
  const std::string_view word = line.word();
  return (read_if<Whats>(word, line, record) || ...);
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t value = ~0u;
  for (char c : data) value = (value >> 8) ^ kCrcTable[(value ^ static_cast<unsigned char>(c)) & 0xff];
  return ~value;
}

std::string format_record(const Record& record) {
  LineWriter line;
  line("time", record.at);
  std::visit(
      [&line]<class What>(const What& what) {
        if constexpr (kHasTwoKinds<What>)
          line.word(What::kKinds[what.grant ? 0 : 1].word);
        else
          line.word(What::kKinds[0].word);
        What::fields(line, what);
      },
      record.what);
  const std::string text = line.text();
  char checksum[kChecksumDigits + 1];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(text));
  return checksum + text + "\n";
}

std::optional<Record> parse_record(std::string_view line) {
  const auto text = checked_part(line);
  if (!text) return std::nullopt;
  LineReader reader(*text);
  Record record;
  reader("time", record.at);
  if (!read_any(reader, record, record.what)) return std::nullopt;
  return record;
}

bool is_of_unknown_kind(std::string_view line) {
  const auto text = checked_part(line);
  if (!text) return false;
  LineReader reader(*text);
  Record record;
  reader("time", record.at);
  const std::string_view word = reader.word();
  return !word.empty() && !is_known_kind(word, record.what);
}

std::string word_of(std::string_view text) {
  std::string word;
  for (const char c : text) word += c > ' ' && c <= '~' ? c : '_';
  return word.empty() ? "-" : word;
}

std::string text_of(std::string_view word) {
  std::string text(word == "-" ? "" : word);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace sharedgpu
