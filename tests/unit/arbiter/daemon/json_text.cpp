// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/json_text.h"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace sharedgpu {
namespace {

using Json = nlohmann::json;

template <class Value>
std::string text_of(const Value& value) {
  JsonText json;
  json.value(value);
  return json.take();
}

TEST_CASE("Nested and empty objects and lists") {
  JsonText json;
  json.object([&] {
    json.field("number", 7);
    json.list("list", [&] {
      json.value(1);
      json.object([&] { json.field("flag", true); });
      json.object([] {});
    });
    json.list("none", [] {});
    json.object("inner", [&] { json.field("text", "a"); });
    json.values("set", std::set<int>{2, 1});
  });
  CHECK(json.take() ==
        R"({"number":7,"list":[1,{"flag":true},{}],"none":[],"inner":{"text":"a"},"set":[1,2]})");
}

TEST_CASE("Each kind of value") {
  CHECK(text_of(nullptr) == "null");
  CHECK(text_of(false) == "false");
  CHECK(text_of(std::optional<int>()) == "null");
  CHECK(text_of(std::optional<int>(3)) == "3");
  CHECK(text_of(-5) == "-5");
  CHECK(text_of(std::uint8_t{200}) == "200");
  CHECK(text_of(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
  CHECK(text_of(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
}

TEST_CASE("A number with a fraction keeps its value and its type, whatever the locale") {
  CHECK(text_of(3.0) == "3.0");
  CHECK(text_of(-0.5) == "-0.5");
  for (const double number : {0.0, 0.1, 1e-9, 1e22, 1.5e300, -123456.789, 1.0 / 3}) {
    INFO(number);
    CHECK(Json::parse(text_of(number)).is_number_float());
    CHECK(Json::parse(text_of(number)) == number);
  }
  CHECK(text_of(std::numeric_limits<double>::infinity()) == "null");
  CHECK(text_of(std::numeric_limits<double>::quiet_NaN()) == "null");
}

TEST_CASE("Any text is read as it was written, except bytes that are not UTF-8") {
  for (const std::string text :
       {"", "plain text", "\"quoted\" \\ back", "two\nlines\ttab\x01", "äöü €", "[", "{", ",", "\x7f"}) {
    INFO(text);
    CHECK(Json::parse(text_of(text)) == text);
  }
  CHECK(Json::parse(text_of(std::string("a\0b", 3))) == std::string("a\0b", 3));
  CHECK(Json::parse(text_of("a\xff\xc3")) == "a\xEF\xBF\xBD\xEF\xBF\xBD");
  JsonText json;
  json.object([&] {
    json.field("one", "[");
    json.field("two", "{");
  });
  CHECK(json.take() == R"({"one":"[","two":"{"})");
}

}  // namespace
}  // namespace sharedgpu
