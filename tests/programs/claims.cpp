// SPDX-License-Identifier: Apache-2.0
// Acts as a session of the arbiter, without the library, and sends false reports. It reports device memory or
// host memory that it does not have, does not report device memory that it allocates, or reports that it
// cannot evict.
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>

#include "config/quantities.h"
#include "protocol/channel.h"
#include "protocol/gpu_names.h"
#include "protocol/messages.h"
#include "tests/programs/command_line.h"

using namespace sharedgpu;

namespace {

struct Options {
  std::string socket;
  std::string gpu;
  std::string pinned = "0";
  std::string swappable = "0";
  std::string context = "0";
  std::string takes = "0";
  std::string host = "0";
  bool stuck = false;
};

int fail(const char* what) {
  std::fprintf(stderr, "claims: %s\n", what);
  return 1;
}

// Sends `question` and waits for a message of the type Answer; ignores messages of other types. Returns false
// if the connection fails.
template <class Answer, class Question>
bool ask(Channel& channel, const Question& question, Answer& answer) {
  if (channel.send(Message::of(question)) != 0) return false;
  for (;;) {
    Message message;
    UniqueFd descriptor;
    if (channel.receive(message, descriptor) != 0) return false;
    if (message.type != Answer::kType) continue;
    answer = message.as<Answer>();
    return true;
  }
}

template <class Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Allocates `size` on the first GPU, and never frees it.
bool take(Bytes size) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = nullptr;
  int (*make_context)(void**, unsigned, int) = nullptr;
  int (*allocate)(unsigned long long*, std::size_t) = nullptr;
  void* context = nullptr;
  unsigned long long address = 0;
  return driver != nullptr && load(driver, "cuInit", init) && load(driver, "cuCtxCreate_v2", make_context) &&
         load(driver, "cuMemAlloc_v2", allocate) && init(0) == 0 && make_context(&context, 0, 0) == 0 &&
         allocate(&address, size.count) == 0;
}

// Answers each Revoke at once with Released, and requests the lease again. With `stuck`, does not request the
// lease again, and answers each Evict with a report that it has no host memory for evictions. With host
// memory in `use`, repeats its report after each second without a message.
void obey(Channel& channel, const MemoryUse& use, bool stuck) {
  for (;;) {
    pollfd readable = {.fd = channel.fd(), .events = POLLIN, .revents = 0};
    if (use.host != Bytes{} && poll(&readable, 1, 1000) == 0) {
      channel.send(Message::of(Usage{.request = 0, .use = use}));
      continue;
    }
    Message message;
    UniqueFd descriptor;
    if (channel.receive(message, descriptor) != 0) return;
    if (message.type == MessageType::revoke) {
      const auto revoke = message.as<Revoke>();
      channel.send(Message::of(Released{.epoch = revoke.epoch,
                                        .order = revoke.order,
                                        .wants = !stuck,
                                        .overuse = {},
                                        .use = use,
                                        .submission = {}}));
    }
    if (message.type == MessageType::evict && stuck)
      channel.send(Message::of(Usage{.request = 0, .use = use, .stuck = 1}));
    if (message.type == MessageType::restore)
      channel.send(Message::of(Ready{.epoch = message.as<Restore>().epoch, .use = use, .moved = {}}));
  }
}

int run(const Options& options) {
  Channel channel;
  Attach attach;
  if (!parse_gpu(options.gpu, attach.gpu)) return fail("which GPU?");
  if (channel.connect(options.socket.c_str()) != 0) return fail("no arbiter");
  MemoryUse use;
  use.swappable = use.resident = parse_size(options.swappable).value_or(Bytes{});
  use.pinned = parse_size(options.pinned).value_or(Bytes{});
  use.context = parse_size(options.context).value_or(Bytes{});
  use.host = parse_size(options.host).value_or(Bytes{});
  attach.total = gibibytes(1);  // ignored if the arbiter knows the GPU
  Welcome welcome;
  Attached attached;
  Verdict verdict;
  if (!ask(channel, Hello{}, welcome) || !ask(channel, attach, attached)) return fail("not served");
  if (!ask(channel, Usage{.request = 1, .use = use}, verdict)) return fail("no answer");
  channel.send(Message::of(Usage{.request = 0, .use = use}));  // reports the memory as allocated
  std::printf("claims: pid %d: %s\n", getpid(), verdict.granted != 0 ? "granted" : "refused");
  const Bytes taken = parse_size(options.takes).value_or(Bytes{});
  if (taken != Bytes{} && !take(taken)) return fail("the driver does not give it that");
  std::fflush(stdout);
  obey(channel, use, options.stuck);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  programs::CommandLine app(
      "Claims device memory that it does not have, or takes some that it does not claim, until the arbiter "
      "ends.");
  Options options;
  app.add_option("--socket", options.socket, "the arbiter's");
  app.add_option("--gpu", options.gpu, "its UUID");
  app.add_option("--pinned", options.pinned, "what it claims to have pinned");
  app.add_option("--swappable", options.swappable, "what it claims besides");
  app.add_option("--context", options.context, "what its contexts are to take");
  app.add_option("--takes", options.takes, "what it takes from the driver without a word");
  app.add_option("--host", options.host, "what it claims to hold of host memory for swap");
  app.add_flag("--stuck", options.stuck, "it says that it has no host memory to evict to");
  app.parse(argc, argv);
  return run(options);
}
