// SPDX-License-Identifier: Apache-2.0
#include "interposer/driver/functions.h"

#include <cuda.h>

#include "interposer/backlog/stream_of.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

using namespace sharedgpu::driver;

namespace {

// The number of words in which a function's parameters are passed, by the calling conventions that submit.cpp
// assumes.
template <class... Parameters>
constexpr int words_of(CUresult (*)(Parameters...)) {
  static_assert(((sizeof(Parameters) <= 8 && !std::is_floating_point_v<Parameters>)&&...));
  return sizeof...(Parameters);
}

// The index of the last parameter that is a stream; -1 if there is none.
template <class... Parameters>
constexpr int stream_in(CUresult (*)(Parameters...)) {
  int found = -1;
  int at = 0;
  ((found = std::is_same_v<Parameters, CUstream> ? at : found, ++at), ...);
  return found;
}

constexpr int kUndeclared = -1;

struct Declared {
  Function function;
  int words;   // kUndeclared: the installed cuda.h is older than the function
  int stream;  // see stream_in()
};
#define DECLARED(name) \
  Declared { Function::name, words_of(&::name), stream_in(&::name) }
#define UNDECLARED(name) \
  Declared { Function::name, kUndeclared, -1 }

// Functions that the cuda.h of CUDA 12.8 or 13.0 declares, and the cuda.h of CUDA 11.8 does not.
#if CUDA_VERSION >= 12080
#define DECLARED_BY_12_8(name) DECLARED(name)
#else
#define DECLARED_BY_12_8(name) UNDECLARED(name)
#endif
#if CUDA_VERSION >= 13000
#define DECLARED_BY_13_0(name) DECLARED(name)
#else
#define DECLARED_BY_13_0(name) UNDECLARED(name)
#endif

// Every function that submits work, in its newest version, and older versions that have the plain name in
// cuda.h 11.8 and later. Per-thread variants are left out.
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
    DECLARED(cuGraphExecUpdate),
    DECLARED_BY_12_8(cuGraphExecNodeSetParams),
    DECLARED_BY_12_8(cuGraphInstantiateWithParams),
    DECLARED_BY_12_8(cuGraphNodeSetParams),
    DECLARED_BY_12_8(cuMemBatchDecompressAsync),
    DECLARED_BY_12_8(cuMemcpy3DBatchAsync),
    DECLARED_BY_12_8(cuMemcpyBatchAsync),
    DECLARED_BY_13_0(cuGraphExecUpdate_v2),
    DECLARED_BY_13_0(cuMemAdvise_v2),
    DECLARED_BY_13_0(cuMemDiscardAndPrefetchBatchAsync),
    DECLARED_BY_13_0(cuMemDiscardBatchAsync),
    DECLARED_BY_13_0(cuMemPrefetchAsync_v2),
    DECLARED_BY_13_0(cuMemPrefetchBatchAsync),
    DECLARED_BY_13_0(cuMemcpy3DBatchAsync_v2),
    DECLARED_BY_13_0(cuMemcpyBatchAsync_v2),
    DECLARED_BY_13_0(cuStreamBatchMemOp_v2),
    DECLARED_BY_13_0(cuStreamWaitValue32_v2),
    DECLARED_BY_13_0(cuStreamWaitValue64_v2),
    DECLARED_BY_13_0(cuStreamWriteValue32_v2),
    DECLARED_BY_13_0(cuStreamWriteValue64_v2),
};

// The name without "_ptsz" or "_ptds".
std::string plain(std::string_view name) {
  std::string result(name);
  if (name.ends_with("_ptsz") || name.ends_with("_ptds")) result.resize(result.size() - 5);
  return result;
}

// A plain name without its version, and the version: 2 for "_v2", 1 for none.
std::pair<std::string, int> version_of(const std::string& name) {
  const std::size_t at = name.rfind("_v");
  if (at == name.npos) return {name, 1};
  return {name.substr(0, at), std::stoi(name.substr(at + 2))};
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

TEST_CASE("functions without a wrapper are not in the table") {
  CHECK(!find("cuDriverGetVersion"));
  CHECK(!find("cuDeviceGetPCIBusId"));
  CHECK(!find("cuGetExportTable"));
  CHECK(kFunctions < 400);
}

TEST_CASE("every function that submits is compared with cuda.h, or a newer version of it is") {
  std::map<std::string, int> newest;
  for (const Declared& declared : kDeclared) {
    const auto [name, version] = version_of(plain(entry(declared.function).name));
    newest[name] = std::max(newest[name], version);
  }
  // From CUDA 12 on, cuda.h gives the name cuGraphInstantiate to cuGraphInstantiateWithFlags, which kDeclared
  // contains.
  newest["cuGraphInstantiate"] = 2;
  // The second versions have separate wrappers with the types of cuda.h; the first versions are compared
  // below.
  newest["cuMemcpyDtoD"] = newest["cuMemcpyDtoDAsync"] = 2;
  for (std::size_t i = 0; i < kFunctions; ++i) {
    const Entry& its = entry(static_cast<Function>(i));
    if (its.words == 0) continue;  // the function has no SUBMIT line
    INFO(its.name << " needs a line in kDeclared");
    const auto [name, version] = version_of(plain(its.name));
    CHECK(version <= newest[name]);
  }
}

TEST_CASE("wrappers hand through as many words as cuda.h declares parameters") {
  for (const Declared& declared : kDeclared) {
    if (declared.words == kUndeclared) continue;
    INFO(entry(declared.function).name);
    CHECK(entry(declared.function).words == declared.words);
  }
}

TEST_CASE("the stream is found among the words of each function that fills a queue") {
  using namespace sharedgpu::backlog;
  int fills = 0;
  for (const Declared& declared : kDeclared) {
    if (declared.words == kUndeclared) continue;
    const Entry& its = entry(declared.function);
    INFO(its.name);
    const int at = stream_at(its.name, its.words);
    if (at == kFillsNoQueue || at == kInConfig) continue;
    CHECK(at == (declared.stream == -1 ? kStreamZero : declared.stream));
    ++fills;
  }
  CHECK(fills > 30);
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
      continue;  // the function has a separate wrapper
    INFO(successor.name);
    auto first = find(successor.name.substr(0, successor.name.size() - 3));
    REQUIRE(first);
    CHECK(entry(*first).words == successor.words);
  }
  // The second versions of cuMemcpyDtoD and cuMemcpyDtoDAsync have separate wrappers.
  constexpr int kCopy = words_of(&::cuMemcpyDtoD_v2);
  constexpr int kAsyncCopy = words_of(&::cuMemcpyDtoDAsync_v2);
  CHECK(entry(*find("cuMemcpyDtoD")).words == kCopy);
  CHECK(entry(*find("cuMemcpyDtoDAsync")).words == kAsyncCopy);
}
