// SPDX-License-Identifier: Apache-2.0
// Checks that any record of the ledger is read as it was written, and that a damaged ledger loses only its
// damaged lines.
#include <rapidcheck.h>
#include <catch2/catch.hpp>
#include <concepts>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "arbiter/ledger/reader.h"
#include "arbiter/ledger/records.h"

namespace sharedgpu::test {
namespace {

// Sets each field of a record to an arbitrary value that a line can hold.
struct AnyValue {
  template <std::integral Number>
  void operator()(const char*, Number& value) {
    value = *rc::gen::arbitrary<Number>();
  }
  void operator()(const char*, std::uint8_t& flag) { flag = *rc::gen::inRange<std::uint8_t>(0, 2); }
  template <class Tag>
  void operator()(const char* name, Id<Tag>& id) {
    (*this)(name, id.value);
  }
  void operator()(const char* name, Bytes& size) { (*this)(name, size.count); }
  void operator()(const char*, Nanoseconds& time) {
    time = Nanoseconds(*rc::gen::inRange<std::int64_t>(0, 1ll << 62));
  }
  void operator()(const char*, Backend& backend) {
    backend = *rc::gen::element(Backend::swap, Backend::managed, Backend::native);
  }
  void operator()(const char*, std::string& text) { text = *rc::gen::nonEmpty(word()); }
  void operator()(const char*, char (&text)[JobClass::kLongest + 1]) {
    const std::string name = *rc::gen::suchThat(
        word(), [](const std::string& any) { return any != "-" && any.size() < sizeof text; });
    name.copy(text, name.size());
  }
  void operator()(const char* name, StepName& step) {
    (*this)(name, step.job);
    (*this)(name, step.step);
  }
  void operator()(const char*, GpuUuid& gpu) { fill(gpu.bytes); }
  void operator()(const char* name, GpuList& gpus) {
    gpus.count = *rc::gen::inRange(0u, GpuList::kMost + 1);
    for (std::uint32_t i = 0; i < gpus.count; ++i) (*this)(name, gpus.gpu[i]);
  }
  void operator()(const char* name, TenantName& tenant) {
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        tenant.job = *rc::gen::nonZero<std::uint32_t>();
        break;
      case 1:
        fill(tenant.run.bytes);
        tenant.run.bytes[0] = 1;
        break;
      default:
        (*this)(name, tenant.process.pid);
        (*this)(name, tenant.process.started);
    }
  }
  void newer(const char* name, auto& value) { (*this)(name, value); }
  void unbounded(const char*, Nanoseconds& time) { time = Nanoseconds(*rc::gen::arbitrary<std::int64_t>()); }
  void where_known(const char* name, auto& value) {
    if (*rc::gen::arbitrary<bool>()) (*this)(name, value.emplace());
  }

 private:
  static rc::Gen<std::string> word() {
    return rc::gen::container<std::string>(rc::gen::inRange<char>('!', std::numeric_limits<char>::max()));
  }
  static void fill(std::uint8_t (&bytes)[16]) {
    for (std::uint8_t& byte : bytes) byte = *rc::gen::arbitrary<std::uint8_t>();
  }
};

// Visits the fields of a record and writes them as text, with different texts for different values.
struct Values {
  std::ostringstream text;

  void operator()(const char* name, const std::integral auto& value) {
    text << name << '=' << +value << '\n';
  }
  template <class Tag>
  void operator()(const char* name, const Id<Tag>& id) {
    (*this)(name, id.value);
  }
  void operator()(const char* name, const Bytes& size) { (*this)(name, size.count); }
  void operator()(const char* name, const Nanoseconds& time) { (*this)(name, time.count()); }
  void operator()(const char* name, const Backend& backend) { (*this)(name, static_cast<int>(backend)); }
  void operator()(const char* name, const std::string& word) { text << name << '=' << word << '\n'; }
  void operator()(const char* name, const char (&word)[JobClass::kLongest + 1]) {
    text << name << '=' << word << '\n';
  }
  void operator()(const char* name, const StepName& step) {
    (*this)(name, step.job);
    (*this)(name, step.step);
  }
  void operator()(const char* name, const GpuUuid& gpu) {
    for (const std::uint8_t byte : gpu.bytes) (*this)(name, byte);
  }
  void operator()(const char* name, const GpuList& gpus) {
    (*this)(name, gpus.count);
    for (std::uint32_t i = 0; i < gpus.count; ++i) (*this)(name, gpus.gpu[i]);
  }
  void operator()(const char* name, const TenantName& tenant) {
    (*this)(name, tenant.job);
    for (const std::uint8_t byte : tenant.run.bytes) (*this)(name, byte);
    (*this)(name, tenant.process.pid);
    (*this)(name, tenant.process.started);
  }
  void newer(const char* name, const auto& value) { (*this)(name, value); }
  void unbounded(const char* name, const Nanoseconds& time) { (*this)(name, time); }
  void where_known(const char* name, const auto& value) {
    (*this)(name, value.has_value());
    if (value) (*this)(name, *value);
  }
};

std::string values_of(const Record& record) {
  Values values;
  values("time", record.at);
  values("type", record.what.index());
  std::visit(
      [&values]<class What>(const What& what) {
        if constexpr (std::is_same_v<What, LeaseRecord>) values("grant", what.grant);
        What::fields(values, what);
      },
      record.what);
  return values.text.str();
}

template <std::size_t... Types>
void make_type(Record& record, std::size_t type, std::index_sequence<Types...>) {
  ((Types == type ? void(record.what.emplace<Types>()) : void()), ...);
}

Record any_record() {
  using What = decltype(Record::what);
  Record record;
  AnyValue any;
  any("time", record.at);
  make_type(record, *rc::gen::inRange<std::size_t>(0, std::variant_size_v<What>),
            std::make_index_sequence<std::variant_size_v<What>>());
  std::visit(
      [&any]<class Type>(Type& what) {
        if constexpr (std::is_same_v<Type, LeaseRecord>) what.grant = *rc::gen::arbitrary<bool>();
        Type::fields(any, what);
      },
      record.what);
  // A LostRecord with zero records is not written: it stands for a damaged line.
  if (auto* lost = std::get_if<LostRecord>(&record.what); lost != nullptr && lost->records == 0)
    lost->records = 1;
  return record;
}

TEST_CASE("Any record is read as it was written") {
  CHECK(rc::check("the same", [] {
    const Record record = any_record();
    const std::string line = format_record(record);
    RC_ASSERT(line.back() == '\n');
    RC_ASSERT(line.find('\n') == line.size() - 1);
    const auto read = parse_record(std::string_view(line).substr(0, line.size() - 1));
    RC_ASSERT(read.has_value());
    RC_ASSERT(values_of(*read) == values_of(record));
  }));
}

// The values of the records in the text, without damaged lines.
std::vector<std::string> values_in(const std::string& text, LedgerReplay& replay) {
  std::vector<std::string> values;
  replay = replay_ledger(text, [&](const Record& record) {
    const auto* lost = std::get_if<LostRecord>(&record.what);
    if (lost == nullptr || lost->records > 0) values.push_back(values_of(record));
  });
  return values;
}

TEST_CASE("If a ledger is cut or damaged anywhere, every undamaged line is read") {
  CHECK(rc::check("the others", [] {
    const auto count = *rc::gen::inRange<std::size_t>(1, 20);
    std::string text;
    std::vector<std::string> values;
    std::vector<std::size_t> ends;  // for each line, the position after its newline
    for (std::size_t i = 0; i < count; ++i) {
      const Record record = any_record();
      text += format_record(record);
      values.push_back(values_of(record));
      ends.push_back(text.size());
    }
    text.resize(*rc::gen::inRange<std::size_t>(0, text.size() + 1));
    const auto damaged =
        text.empty()
            ? std::set<std::size_t>{}
            : *rc::gen::container<std::set<std::size_t>>(rc::gen::inRange<std::size_t>(0, text.size()));
    const bool torn = !text.empty() && text.back() != '\n';
    // Flips the last bit: another bit could change only the case of a hexadecimal digit, which leaves a
    // checksum valid.
    for (const std::size_t place : damaged) text[place] = static_cast<char>(text[place] ^ 1);

    std::vector<std::string> whole;
    for (std::size_t i = 0, begin = 0; i < count; begin = ends[i++]) {
      // If a newline was changed, the line before it and the line after it are one line.
      const auto first = damaged.lower_bound(begin == 0 ? 0 : begin - 1);
      const bool touched = first != damaged.end() && *first < ends[i];
      if (!touched && ends[i] <= text.size()) whole.push_back(values[i]);
    }
    LedgerReplay replay;
    RC_ASSERT(values_in(text, replay) == whole);
    RC_ASSERT(replay.records == whole.size());
    RC_ASSERT((replay.damaged > 0) == (torn || !damaged.empty()));
  }));
}

}  // namespace
}  // namespace sharedgpu::test
