// SPDX-License-Identifier: Apache-2.0
// The arbiter's notices are written to the standard error with which the program was started, and to no other
// file.
#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <future>
#include <sstream>
#include <string>

#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;

namespace {

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Makes descriptor 2 refer to the file of `fd`, or closes descriptor 2 if `fd` is negative. Restores
// descriptor 2 at the end of the scope.
class OtherStderr {
 public:
  explicit OtherStderr(int fd, int flags = 0) : saved_(dup(STDERR_FILENO)) { dup3_or_2(fd, flags); }
  ~OtherStderr() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }
  OtherStderr(const OtherStderr&) = delete;
  OtherStderr& operator=(const OtherStderr&) = delete;

 private:
  static void dup3_or_2(int fd, int flags) {
    if (fd < 0)
      close(STDERR_FILENO);
    else
      dup3(fd, STDERR_FILENO, flags);
  }
  int saved_;
};

int open_new(const std::string& path) {
  return open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

}  // namespace

TEST_CASE("a notice of the arbiter is one line on the standard error of the program, and nowhere else") {
  const std::string base = "/tmp/sharedgpu-notices-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", base.c_str(), 1);
  setenv("SIMGPU_MEMORY", "64MiB", 1);
  const std::string log = base + ".log", data = base + ".data";
  const int log_file = open_new(log), data_file = open_new(data);
  REQUIRE(log_file > 2);
  REQUIRE(data_file > 2);
  test::ScriptedArbiter arbiter(base);
  std::string said;
  // Sends a notice, and returns the text that it has added to the log.
  const auto notice = [&](const char* text) {
    const std::string before = text_of(log);
    Notice its;
    std::string(text).copy(its.text, sizeof its.text - 1);
    arbiter.say(its);
    // The session has handled the notice once it has received the answer to a later query.
    auto asked = std::async(std::launch::async, [] {
      CUcontext context = nullptr;
      cuDevicePrimaryCtxRetain(&context, 0);
      cuCtxPushCurrent_v2(context);
      std::size_t free = 0, total = 0;
      return cuMemGetInfo_v2(&free, &total);
    });
    arbiter.serve_until([&] { return asked.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    return text_of(log).substr(before.size());
  };
  const std::string prefix = "sharedgpu[" + std::to_string(getpid()) + "]: ";
  {
    const OtherStderr started_with(log_file);
    REQUIRE(arbiter.begin([] { return cuInit(0); }) == CUDA_SUCCESS);
    CHECK(notice("first") == prefix + "first\n");
    CHECK(notice("100%s") == prefix + "100%s\n");
    {
      const OtherStderr closed(-1);
      CHECK(notice("closed").empty());
    }
    {
      const OtherStderr reused(data_file);
      CHECK(notice("reused").empty());
    }
    {
      const OtherStderr private_to_the_program(log_file, O_CLOEXEC);
      CHECK(notice("closed at exec").empty());
    }
    {
      const int unwritable = open(log.c_str(), O_RDONLY | O_CLOEXEC);
      const OtherStderr reading(unwritable);
      CHECK(notice("unwritable").empty());
      close(unwritable);
    }
    CHECK(notice("last") == prefix + "last\n");
  }
  CHECK(text_of(data).empty());
  close(log_file);
  close(data_file);
  unlink(log.c_str());
  unlink(data.c_str());
}
