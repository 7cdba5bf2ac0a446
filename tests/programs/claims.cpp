// SPDX-License-Identifier: Apache-2.0
// Says to the arbiter that it has device memory, and has none: a session by hand, without CUDA.
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
};

int fail(const char* what) {
  std::fprintf(stderr, "claims: %s\n", what);
  return 1;
}

// True if the answer to `question` is of that type. What else comes meanwhile is passed over.
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

// Gives its lease back whenever it is told to, and wants it again at once.
void obey(Channel& channel, const MemoryUse& use) {
  for (;;) {
    Message message;
    UniqueFd descriptor;
    if (channel.receive(message, descriptor) != 0) return;
    if (message.type == MessageType::revoke) {
      const auto revoke = message.as<Revoke>();
      channel.send(Message::of(Released{.epoch = revoke.epoch,
                                        .order = revoke.order,
                                        .wants = 1,
                                        .overuse = {},
                                        .use = use,
                                        .submission = {}}));
    }
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
  Welcome welcome;
  Attached attached;
  Verdict verdict;
  if (!ask(channel, Hello{}, welcome) || !ask(channel, attach, attached)) return fail("not served");
  if (!ask(channel, Usage{.request = 1, .use = use}, verdict)) return fail("no answer");
  std::printf("claims: pid %d: %s\n", getpid(), verdict.granted != 0 ? "granted" : "refused");
  std::fflush(stdout);
  obey(channel, use);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  programs::CommandLine app("Claims device memory that it does not have, until the arbiter ends.");
  Options options;
  app.add_option("--socket", options.socket, "the arbiter's");
  app.add_option("--gpu", options.gpu, "its UUID");
  app.add_option("--pinned", options.pinned, "what it claims to have pinned");
  app.add_option("--swappable", options.swappable, "what it claims besides");
  app.add_option("--context", options.context, "what its contexts are to take");
  app.parse(argc, argv);
  return run(options);
}
