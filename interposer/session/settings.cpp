// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/settings.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "protocol/channel.h"
#include "protocol/environment.h"

namespace sharedgpu::session {
namespace {

int hexadecimal(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

bool read_token(const char* text, RunToken& token) {
  if (std::strlen(text) != 2 * sizeof token.bytes) return false;
  for (std::size_t i = 0; i < sizeof token.bytes; ++i) {
    int high = hexadecimal(text[2 * i]);
    int low = hexadecimal(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    token.bytes[i] = static_cast<std::uint8_t>(16 * high + low);
  }
  return true;
}

bool read_milliseconds(const char* text, Nanoseconds& time) {
  if (*text < '0' || *text > '9') return false;
  char* end = nullptr;
  errno = 0;
  unsigned long value = std::strtoul(text, &end, 10);
  if (errno != 0 || *end != '\0' || value > 86'400'000) return false;
  time = std::chrono::milliseconds(value);
  return true;
}

bool read_path(const char* text, char (&path)[108]) {
  std::size_t length = std::strlen(text);
  if (length >= sizeof path) return false;
  std::memcpy(path, text, length + 1);
  return true;
}

bool read_choice(const char* text, bool& fail) {
  fail = std::strcmp(text, "fail") == 0;
  return fail || std::strcmp(text, "plain") == 0;
}

}  // namespace

Settings read_settings(Lookup lookup, Complain complain) {
  Settings settings;
  std::memcpy(settings.socket, kDefaultSocket, sizeof kDefaultSocket);
  auto read = [&](const char* name, const char* expected, auto&& parse) {
    const char* value = lookup(name);
    if (value != nullptr && *value != '\0' && !parse(value)) complain(name, value, expected);
  };
  read(environment::kSocket, "a path of at most 107 bytes",
       [&](const char* value) { return read_path(value, settings.socket); });
  read(environment::kToken, "32 hexadecimal digits", [&](const char* value) {
    RunToken token;
    if (!read_token(value, token)) return false;
    settings.token = token;
    return true;
  });
  read(environment::kArbiterTimeout, "milliseconds, at most a day",
       [&](const char* value) { return read_milliseconds(value, settings.arbiter_timeout); });
  read(environment::kOnNoArbiter, "plain or fail",
       [&](const char* value) { return read_choice(value, settings.fail_without_arbiter); });
  read(environment::kDeadlineRead, "a descriptor and the number of its file",
       [&](const char* value) { return read_deadline_pipe(value, settings.deadlines); });
  return settings;
}

}  // namespace sharedgpu::session
