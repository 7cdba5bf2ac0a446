// SPDX-License-Identifier: Apache-2.0
// The wrappers of all functions that give work to the GPU, made from the SUBMIT lines of functions.def.
//
// Each parameter of these functions is an integer, an enumeration, a pointer or a struct of eight bytes. In
// the calling conventions of both x86-64 and AArch64, it takes one register or one stack slot. So a wrapper
// passes each argument as a word, without knowing its type. Functions that the installed cuda.h does not
// declare get wrappers, too. tests/unit/interposer/driver/functions.cpp checks the number of arguments
// against cuda.h.
#include <cstdint>

#include "interposer/backlog/in_order.h"
#include "interposer/backlog/stream_of.h"
#include "interposer/driver/real.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/graph_calls.h"
#include "interposer/hooks/oversized.h"
#include "interposer/hooks/peer.h"
#include "interposer/oversize/active.h"

namespace {

namespace backlog = sharedgpu::backlog;
namespace hooks = sharedgpu::hooks;
using sharedgpu::driver::Function;
using Word = std::uintptr_t;
using Result = int;  // CUresult

constexpr Result kNotFound = 500;  // CUDA_ERROR_NOT_FOUND

// Passes the gate, and counts the submission on the stream whose queue it fills.
template <int stream, bool own>
struct Way : backlog::Submission {
  static constexpr int kStream = stream;
  static constexpr bool kOwn = own;
  template <class... Words>
  explicit Way(Words... words) : Submission(backlog::stream_of<stream>(words...), own) {}
};

// Passes the gate.
template <bool own>
struct Way<backlog::kFillsNoQueue, own> : sharedgpu::gate::Pass {
  template <class... Words>
  explicit Way(Words... /*words*/) {
    if constexpr (own) to_own_stream();
  }
};

template <class Way, hooks::LaunchForm form, class... Words>
[[gnu::noinline]] Result launch_oversized(void* target, Words... words) {
  const std::uintptr_t stream = backlog::stream_of<Way::kStream>(words...);
  hooks::OversizedLaunch launch(hooks::kernel_launch<form>(stream, Way::kOwn, words...));
  const backlog::InOrder in_order(stream, Way::kOwn);
  Way way(words...);
  launch.begin();
  const Result result = reinterpret_cast<Result (*)(Words...)>(target)(words...);
  launch.end(result == 0);
  return result;
}

template <hooks::GraphForm form, class... Words>
void note_graph(Words... words) {
  const Word all[] = {words...};
  hooks::note_graph_call(form, all[0], all[1], all[2]);
}

template <Function function, class Way, int ordered_at, bool own, bool copies, hooks::LaunchForm form,
          hooks::GraphForm graph, class... Words>
inline Result submit(Words... words) {
  void* target = sharedgpu::driver::real(function);
  if (target == nullptr) return kNotFound;
  if constexpr (form != hooks::LaunchForm::none)
    if (sharedgpu::oversize::is_active()) [[unlikely]]
      return launch_oversized<Way, form>(target, words...);
  const auto call = [=] {
    Way way(words...);
    const Result result = reinterpret_cast<Result (*)(Words...)>(target)(words...);
    if constexpr (graph != hooks::GraphForm::none)
      if (result == 0) note_graph<graph>(words...);
    return result;
  };
  if constexpr (ordered_at != backlog::kFillsNoQueue)
    if (sharedgpu::oversize::is_active()) [[unlikely]] {
      const backlog::InOrder in_order(backlog::stream_of<ordered_at>(words...), own);
      if constexpr (copies) return hooks::copy_with_access(call);
      return call();
    }
  if constexpr (copies) return hooks::copy_with_access(call);
  return call();
}

}  // namespace

#define PARAMETERS_1 Word a
#define PARAMETERS_2 PARAMETERS_1, Word b
#define PARAMETERS_3 PARAMETERS_2, Word c
#define PARAMETERS_4 PARAMETERS_3, Word d
#define PARAMETERS_5 PARAMETERS_4, Word e
#define PARAMETERS_6 PARAMETERS_5, Word f
#define PARAMETERS_7 PARAMETERS_6, Word g
#define PARAMETERS_8 PARAMETERS_7, Word h
#define PARAMETERS_9 PARAMETERS_8, Word i
#define PARAMETERS_10 PARAMETERS_9, Word j
#define PARAMETERS_11 PARAMETERS_10, Word k

#define ARGUMENTS_1 a
#define ARGUMENTS_2 ARGUMENTS_1, b
#define ARGUMENTS_3 ARGUMENTS_2, c
#define ARGUMENTS_4 ARGUMENTS_3, d
#define ARGUMENTS_5 ARGUMENTS_4, e
#define ARGUMENTS_6 ARGUMENTS_5, f
#define ARGUMENTS_7 ARGUMENTS_6, g
#define ARGUMENTS_8 ARGUMENTS_7, h
#define ARGUMENTS_9 ARGUMENTS_8, i
#define ARGUMENTS_10 ARGUMENTS_9, j
#define ARGUMENTS_11 ARGUMENTS_10, k

#define SUBMIT(name, words)                                                                \
  SHAREDGPU_EXPORT Result name(PARAMETERS_##words) {                                       \
    constexpr bool own = backlog::to_own_stream(#name);                                    \
    constexpr int ordered = backlog::ordered_at(#name, words);                             \
    using Its = Way<backlog::stream_at(#name, words), own>;                                \
    constexpr hooks::LaunchForm form = hooks::launch_form(#name);                          \
    constexpr hooks::GraphForm graph = hooks::graph_form(#name);                           \
    return submit<Function::name, Its, ordered, own, backlog::copies(#name), form, graph>( \
        ARGUMENTS_##words);                                                                \
  }
#include "interposer/driver/functions.def"
