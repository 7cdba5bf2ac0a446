// SPDX-License-Identifier: Apache-2.0
// Checks that the table of records in docs/ledger.md agrees with the descriptions in records.h.
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>

#include "arbiter/ledger/records.h"

namespace sharedgpu {
namespace {

// Visits the fields of a record and collects their names.
class FieldNames {
 public:
  void operator()(const char* name, const auto&) { add(name); }
  void operator()(const char*, const TenantName&) {
    add("then `job` JOB, `run` TOKEN or `process` PID START");
  }
  void operator()(const char* name, const StepName&) { add(std::string(name) + " (2)"); }
  void operator()(const char* name, const GpuList&) { add(std::string(name) + "..."); }
  void newer(const char* name, const auto&) { add(std::string(name) + " (not in older ledgers)"); }
  void unbounded(const char* name, const auto&) { add(name); }
  void where_known(const char* name, const auto&) { add(std::string(name) + " (where known)"); }

  const std::string& text() const { return text_; }

 private:
  void add(const std::string& field) { text_ += (text_.empty() ? "" : ", ") + field; }

  std::string text_;
};

template <class What>
std::string rows_of() {
  FieldNames names;
  const What what;
  What::fields(names, what);
  std::string rows;
  for (const RecordKind& kind : What::kKinds)
    rows += "| `" + std::string(kind.word) + "` | " + names.text() + (names.text().empty() ? "" : " ") +
            "| " + std::string(kind.meaning) + " |\n";
  return rows;
}

template <class... Whats>
std::string table_of(const std::variant<Whats...>&) {
  return "| kind | fields | meaning |\n|---|---|---|\n" + (rows_of<Whats>() + ...);
}

TEST_CASE("The page on the ledger has the table of the records") {
  std::ifstream file(LEDGER_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const std::size_t begin = text.find("| kind |");
  REQUIRE(begin != text.npos);
  const std::string table = text.substr(begin, text.find("\n\n", begin) + 1 - begin);
  CHECK(table == table_of(Record().what));
}

}  // namespace
}  // namespace sharedgpu
