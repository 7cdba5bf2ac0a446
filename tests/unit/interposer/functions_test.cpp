// SPDX-License-Identifier: Apache-2.0
#include "interposer/driver/functions.h"

#include <cuda.h>

#include "interposer/hooks/stream_of.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

using namespace sharedgpu::driver;

namespace {

// How many words the parameters of a function take by the calling conventions that submit.cpp relies on.
template <class... Parameters>
constexpr int words_of(CUresult (*)(Parameters...)) {
  static_assert(((sizeof(Parameters) <= 8 && !std::is_floating_point_v<Parameters>)&&...));
  return sizeof...(Parameters);
}

// The number of the last parameter that is a stream; -1: none is.
template <class... Parameters>
constexpr int stream_in(CUresult (*)(Parameters...)) {
  int found = -1;
  int at = 0;
  ((found = std::is_same_v<Parameters, CUstream> ? at : found, ++at), ...);
  return found;
}

struct Declared {
  Function function;
  int words;
  int stream;
};
#define DECLARED(name) \
  Declared { Function::name, words_of(&::name), stream_in(&::name) }

// Every submitting function under its first plain name that cuda.h 11.8 and later declare; variants follow.
const Declared kDeclared[] = {
    DECLARED(cuLaunch),
    DECLARED(cuLaunchGrid),
    DECLARED(cuLaunchGridAsync),
    DECLARED(cuLaunchKernel),
    DECLARED(cuLaunchKernelEx),
    DECLARED(cuLaunchCooperativeKernel),
    DECLARED(cuLaunchCooperativeKernelMultiDevice),
    DECLARED(cuMemcpyPeer),
    DECLARED(cuMemcpyPeerAsync),
    DECLARED(cuMemcpyHtoD_v2),
    DECLARED(cuMemcpyDtoH_v2),
    DECLARED(cuMemcpyDtoA_v2),
    DECLARED(cuMemcpyAtoD_v2),
    DECLARED(cuMemcpyHtoA_v2),
    DECLARED(cuMemcpyAtoH_v2),
    DECLARED(cuMemcpyAtoA_v2),
    DECLARED(cuMemcpyHtoAAsync_v2),
    DECLARED(cuMemcpyAtoHAsync_v2),
    DECLARED(cuMemcpyHtoDAsync_v2),
    DECLARED(cuMemcpyDtoHAsync_v2),
    DECLARED(cuMemcpy2D_v2),
    DECLARED(cuMemcpy2DUnaligned_v2),
    DECLARED(cuMemcpy2DAsync_v2),
    DECLARED(cuMemcpy3D_v2),
    DECLARED(cuMemcpy3DAsync_v2),
    DECLARED(cuMemcpy3DPeer),
    DECLARED(cuMemcpy3DPeerAsync),
    DECLARED(cuMemsetD8_v2),
    DECLARED(cuMemsetD16_v2),
    DECLARED(cuMemsetD32_v2),
    DECLARED(cuMemsetD2D8_v2),
    DECLARED(cuMemsetD2D16_v2),
    DECLARED(cuMemsetD2D32_v2),
    DECLARED(cuMemsetD8Async),
    DECLARED(cuMemsetD16Async),
    DECLARED(cuMemsetD32Async),
    DECLARED(cuMemsetD2D8Async),
    DECLARED(cuMemsetD2D16Async),
    DECLARED(cuMemsetD2D32Async),
    DECLARED(cuMemPrefetchAsync),
    DECLARED(cuMemAdvise),
    DECLARED(cuMemMapArrayAsync),
    DECLARED(cuStreamWriteValue32),
    DECLARED(cuStreamWaitValue32),
    DECLARED(cuStreamWriteValue64),
    DECLARED(cuStreamWaitValue64),
    DECLARED(cuStreamBatchMemOp),
    DECLARED(cuStreamAttachMemAsync),
    DECLARED(cuLaunchHostFunc),
    DECLARED(cuStreamAddCallback),
    DECLARED(cuSignalExternalSemaphoresAsync),
    DECLARED(cuWaitExternalSemaphoresAsync),
    DECLARED(cuGraphicsMapResources),
    DECLARED(cuGraphicsUnmapResources),
    DECLARED(cuGraphAddBatchMemOpNode),
    DECLARED(cuGraphAddMemcpyNode),
    DECLARED(cuGraphAddMemsetNode),
    DECLARED(cuGraphBatchMemOpNodeSetParams),
    DECLARED(cuGraphExecBatchMemOpNodeSetParams),
    DECLARED(cuGraphExecChildGraphNodeSetParams),
    DECLARED(cuGraphExecMemcpyNodeSetParams),
    DECLARED(cuGraphExecMemsetNodeSetParams),
    DECLARED(cuGraphInstantiateWithFlags),
    DECLARED(cuGraphMemcpyNodeSetParams),
    DECLARED(cuGraphMemsetNodeSetParams),
    DECLARED(cuTexObjectCreate),
    DECLARED(cuTexRefSetAddress_v2),
    DECLARED(cuTexRefSetAddress2D_v3),
#if CUDA_VERSION >= 12080
    DECLARED(cuMemcpyBatchAsync),
    DECLARED(cuMemcpy3DBatchAsync),
    DECLARED(cuMemBatchDecompressAsync),
#endif
#if CUDA_VERSION >= 13000
    DECLARED(cuMemcpyBatchAsync_v2),
    DECLARED(cuMemcpy3DBatchAsync_v2),
    DECLARED(cuMemPrefetchAsync_v2),
    DECLARED(cuMemPrefetchBatchAsync),
    DECLARED(cuMemDiscardBatchAsync),
    DECLARED(cuMemDiscardAndPrefetchBatchAsync),
#endif
};

// Without "_ptsz" or "_ptds".
std::string plain(std::string_view name) {
  std::string result(name);
  if (name.ends_with("_ptsz") || name.ends_with("_ptds")) result.resize(result.size() - 5);
  return result;
}

}  // namespace

TEST_CASE("the table finds every function by its exact name, and no other") {
  for (std::size_t i = 0; i < kFunctions; ++i) {
    auto function = static_cast<Function>(i);
    CHECK(find(entry(function).name) == function);
  }
  CHECK(!find("cuMemAllo"));
  CHECK(!find("cuMemAlloc_v3"));
  CHECK(!find("curl_easy_init"));
  CHECK(!find(""));
}

TEST_CASE("functions that nothing is done about leave no trace") {
  CHECK(!find("cuDriverGetVersion"));
  CHECK(!find("cuEventElapsedTime"));
  CHECK(!find("cuGetExportTable"));
  CHECK(kFunctions < 400);
}

TEST_CASE("wrappers hand through as many words as cuda.h declares parameters") {
  for (const Declared& declared : kDeclared) {
    INFO(entry(declared.function).name);
    CHECK(entry(declared.function).words == declared.words);
  }
}

TEST_CASE("the stream is found among the words of all that fills a queue") {
  using namespace sharedgpu::hooks;
  int fills = 0;
  for (const Declared& declared : kDeclared) {
    const Entry& its = entry(declared.function);
    INFO(its.name);
    const int at = stream_at(its.name, its.words);
    if (at == kFillsNoQueue || at == kInConfig) continue;
    CHECK(at == (declared.stream == -1 ? kStreamZero : declared.stream));
    ++fills;
  }
  CHECK(fills > 40);
  CHECK(stream_at("cuLaunchKernelEx", 4) == kInConfig);
  CHECK(offsetof(CUlaunchConfig, hStream) == kStreamInConfig);
  for (const char* waker : {"cuLaunchHostFunc", "cuStreamWriteValue32_v2", "cuSignalExternalSemaphoresAsync"})
    CHECK(stream_at(waker, 4) == kFillsNoQueue);
}

TEST_CASE("a per-thread variant takes what the plain function takes") {
  int variants = 0;
  for (std::size_t i = 0; i < kFunctions; ++i) {
    const Entry& variant = entry(static_cast<Function>(i));
    if (plain(variant.name) == variant.name) continue;
    INFO(variant.name);
    auto original = find(plain(variant.name));
    REQUIRE(original);
    CHECK(entry(*original).words == variant.words);
    ++variants;
  }
  CHECK(variants > 60);
}

TEST_CASE("the 32-bit copies and fills take what their successors take") {
  for (std::size_t i = 0; i < kFunctions; ++i) {
    const Entry& successor = entry(static_cast<Function>(i));
    bool same_words = successor.name.starts_with("cuMemcpy") || successor.name.starts_with("cuMemset");
    if (!same_words || !successor.name.ends_with("_v2") ||
        successor.name.find("Batch") != std::string_view::npos || successor.words == 0)
      continue;  // or it has a wrapper of its own
    INFO(successor.name);
    auto first = find(successor.name.substr(0, successor.name.size() - 3));
    REQUIRE(first);
    CHECK(entry(*first).words == successor.words);
  }
}
