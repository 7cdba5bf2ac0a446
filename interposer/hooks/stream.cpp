// SPDX-License-Identifier: Apache-2.0
// Streams and their captures. The turn thread queries the streams to detect idleness. During a capture no
// thread may synchronize. So no drain can finish, and work may pass a closed gate until the capture ends.
#include <optional>

#include "interposer/backlog/in_order.h"
#include "interposer/backlog/queues.h"
#include "interposer/backlog/streams.h"
#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"
#include "interposer/gate/gate.h"
#include "interposer/hooks/export.h"
#include "interposer/oversize/active.h"
#include "interposer/process/process.h"

#if CUDA_VERSION < 12030
struct CUgraphEdgeData;
extern "C" CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                                                size_t, CUstreamCaptureMode);
#endif
#if CUDA_VERSION < 12050
typedef struct CUgreenCtx_st* CUgreenCtx;
extern "C" CUresult cuGreenCtxStreamCreate(CUstream*, CUgreenCtx, unsigned int, int);
#endif
extern "C" {
CUresult cuStreamBeginCapture_v2_ptsz(CUstream, CUstreamCaptureMode);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                                          size_t, CUstreamCaptureMode);
CUresult cuStreamEndCapture_ptsz(CUstream, CUgraph*);
}

using namespace sharedgpu;
using backlog::per_thread;

namespace {

// Counts the capture before it begins, so that no thread synchronizes between the beginning and the counting.
template <class Call>
CUresult begin(CUstream stream, Call real) {
  std::optional<backlog::InOrder> in_order;
  if (oversize::is_active()) [[unlikely]]
    in_order.emplace(reinterpret_cast<backlog::StreamWord>(stream), false);
  gate::Pass pass;
  Process* const mine = Process::get();
  if (mine == nullptr) return real();
  mine->contexts().capture_began();
  CUresult result = real();
  if (result == CUDA_SUCCESS)
    mine->captures().add(stream);
  else
    gate::capture_ended();
  return result;
}

// Removes the capture if the driver has ended it. An error does not show whether the capture has ended. If
// the capture was invalidated, the driver returns an error and ends the capture. If the arguments are wrong,
// the driver returns an error and does not end the capture.
CUresult end(CUstream stream, CUresult result) {
  Process* const mine = Process::get();
  if (mine == nullptr || !mine->captures().contain(stream)) return result;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (result != CUDA_SUCCESS) SHAREDGPU_REAL(cuStreamIsCapturing, stream, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) mine->captures().remove(stream);
  return result;
}

CUresult created(CUresult result, CUstream* stream) {
  CUcontext context = nullptr;
  Process* const mine = Process::get();
  if (result == CUDA_SUCCESS && mine != nullptr && !mine->devices().memories().empty() &&
      SHAREDGPU_REAL(cuCtxGetCurrent, &context) == CUDA_SUCCESS)
    mine->contexts().add_stream(*stream, context);
  return result;
}

void leave(CUstream stream) {
  Process* const mine = Process::get();
  if (mine == nullptr) return;
  mine->captures().remove(stream);
  mine->contexts().remove_stream(stream);
  if (mine->devices().memories().empty()) return;
  backlog::forget_queue(stream);
  backlog::forget_stream(stream);
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return created(SHAREDGPU_REAL(cuStreamCreate, stream, flags), stream);
}

SHAREDGPU_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return created(SHAREDGPU_REAL(cuStreamCreateWithPriority, stream, flags, priority), stream);
}

SHAREDGPU_EXPORT CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned int flags,
                                                 int priority) {
  return created(SHAREDGPU_REAL(cuGreenCtxStreamCreate, stream, context, flags, priority), stream);
}

SHAREDGPU_EXPORT CUresult cuStreamDestroy(CUstream stream) {
  leave(stream);
  return SHAREDGPU_REAL(cuStreamDestroy, stream);
}

SHAREDGPU_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  leave(stream);
  return SHAREDGPU_REAL(cuStreamDestroy_v2, stream);
}

SHAREDGPU_EXPORT CUresult cuStreamBeginCapture(CUstream stream) {
  return begin(stream, [=] { return SHAREDGPU_REAL(cuStreamBeginCapture, stream); });
}

SHAREDGPU_EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return begin(per_thread(stream), [=] { return SHAREDGPU_REAL(cuStreamBeginCapture_ptsz, stream); });
}

SHAREDGPU_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, [=] { return SHAREDGPU_REAL(cuStreamBeginCapture_v2, stream, mode); });
}

SHAREDGPU_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begin(per_thread(stream),
               [=] { return SHAREDGPU_REAL(cuStreamBeginCapture_v2_ptsz, stream, mode); });
}

SHAREDGPU_EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                                      const CUgraphNode* after, const CUgraphEdgeData* edges,
                                                      size_t count, CUstreamCaptureMode mode) {
  return begin(stream, [=] {
    return SHAREDGPU_REAL(cuStreamBeginCaptureToGraph, stream, graph, after, edges, count, mode);
  });
}

SHAREDGPU_EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                           const CUgraphNode* after,
                                                           const CUgraphEdgeData* edges, size_t count,
                                                           CUstreamCaptureMode mode) {
  return begin(per_thread(stream), [=] {
    return SHAREDGPU_REAL(cuStreamBeginCaptureToGraph_ptsz, stream, graph, after, edges, count, mode);
  });
}

SHAREDGPU_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return end(stream, SHAREDGPU_REAL(cuStreamEndCapture, stream, graph));
}

SHAREDGPU_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return end(per_thread(stream), SHAREDGPU_REAL(cuStreamEndCapture_ptsz, stream, graph));
}
