// SPDX-License-Identifier: Apache-2.0
// Writes JSON value by value, without white space. Building a tree of values (nlohmann::json) takes several
// times as long, and the arbiter cannot serve other clients in this time.
//
//   JsonText json;
//   json.object([&] {
//     json.field("number", 7);
//     json.list("names", [&] { json.value("ann"); });
//   });
//   json.take();  // {"number":7,"names":["ann"]}
//
// Bytes that are not UTF-8 become U+FFFD; a number that is not finite becomes null. Not thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sharedgpu {

class JsonText {
 public:
  // A value in a list.
  template <class Value>
  void value(const Value& value) {
    separate();
    write(value);
  }
  // `write_fields` and `write_values` call the functions of this object for the contents.
  template <class Function>
  void object(Function&& write_fields) {
    separate();
    enclose('{', '}', write_fields);
  }

  // A field of an object. `name` contains only characters that JSON does not escape.
  template <class Value>
  void field(std::string_view name, const Value& value) {
    begin(name);
    write(value);
  }
  template <class Function>
  void object(std::string_view name, Function&& write_fields) {
    begin(name);
    enclose('{', '}', write_fields);
  }
  template <class Function>
  void list(std::string_view name, Function&& write_values) {
    begin(name);
    enclose('[', ']', write_values);
  }
  template <class Values>
  void values(std::string_view name, const Values& values) {
    list(name, [&] {
      for (const auto& each : values) value(each);
    });
  }

  std::string take() { return std::exchange(text_, {}); }

 private:
  void separate();
  void begin(std::string_view name);
  template <class Function>
  void enclose(char open, char close, Function& contents) {
    text_ += open;
    contents();
    text_ += close;
  }

  void write(std::nullptr_t) { text_ += "null"; }
  void write(bool flag) { text_ += flag ? "true" : "false"; }
  void write(std::signed_integral auto number) { write_number(std::int64_t{number}); }
  void write(std::unsigned_integral auto number) { write_number(std::uint64_t{number}); }
  void write(double number);
  void write(std::string_view text);
  void write(const std::string& text) { write(std::string_view(text)); }
  void write(const char* text) { write(std::string_view(text)); }
  template <class Value>
  void write(const std::optional<Value>& value) {
    value ? write(*value) : write(nullptr);
  }
  void write_number(std::int64_t number);
  void write_number(std::uint64_t number);

  std::string text_;
};

}  // namespace sharedgpu
