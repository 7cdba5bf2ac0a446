// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions and stream capture.
#include "tests/simgpu/api.h"
#include "tests/simgpu/graph_node.h"
#include "tests/simgpu/work.h"

using namespace sharedgpu::simgpu;

namespace {

// The greatest priority that cuCtxGetStreamPriorityRange returns; the least priority is 0.
constexpr int kGreatest = -5;

CUstream handle_of(const StreamPtr& stream) { return reinterpret_cast<CUstream>(stream.get()); }

CUresult make_stream(const char* name, CUstream* out, unsigned flags, int priority) {
  return call(name, Needs::context, [&] {
    require(out != nullptr && (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) == 0,
            CUDA_ERROR_INVALID_VALUE);
    auto kind = flags == CU_STREAM_NON_BLOCKING ? Stream::Kind::non_blocking : Stream::Kind::blocking;
    StreamPtr stream =
        current_context()->make_stream(kind, flags, std::min(0, std::max(priority, kGreatest)));
    driver().streams.add(stream);
    *out = handle_of(stream);
  });
}

CUresult query(DefaultStream zero, CUstream handle) {
  return call("cuStreamQuery", Needs::context, [&] {
    StreamPtr stream = find_stream(zero, handle);
    forbid_capture(*stream);
    std::lock_guard lock(order_lock());
    auto done = [](const TaskPtr& task) { return !task || task->done; };
    bool idle =
        done(stream->last) && std::all_of(stream->pending_waits.begin(), stream->pending_waits.end(), done);
    if (sticky_error() != CUDA_SUCCESS) return sticky_error();
    return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult synchronize_stream(DefaultStream zero, CUstream handle) {
  return call("cuStreamSynchronize", Needs::context, [&] {
    StreamPtr stream = find_stream(zero, handle);
    forbid_capture(*stream);
    if (stream->kind == Stream::Kind::legacy) return synchronize(*stream->context);
    // Events for which the stream waits count as work of the stream.
    bool waits;
    TaskPtr last;
    {
      std::lock_guard lock(order_lock());
      waits = !stream->pending_waits.empty();
      last = stream->last;
    }
    if (waits) last = submit(stream, {});
    return wait(last);
  });
}

CUresult wait_for_event(DefaultStream zero, CUstream handle, CUevent event, unsigned flags) {
  return call("cuStreamWaitEvent", Needs::context, [&] {
    require((flags & ~1u) == 0, CUDA_ERROR_INVALID_VALUE);
    wait_event(find_stream(zero, handle), *driver().events.get(event));
  });
}

CUresult get_flags(DefaultStream zero, CUstream handle, unsigned* flags) {
  return call("cuStreamGetFlags", Needs::context, [&] {
    require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
    *flags = find_stream(zero, handle)->flags;
  });
}

CUresult get_priority(DefaultStream zero, CUstream handle, int* priority) {
  return call("cuStreamGetPriority", Needs::context, [&] {
    require(priority != nullptr, CUDA_ERROR_INVALID_VALUE);
    *priority = find_stream(zero, handle)->priority;
  });
}

#if CUDA_VERSION >= 12000
CUresult get_id(DefaultStream zero, CUstream handle, unsigned long long* id) {
  return call("cuStreamGetId", Needs::context, [&] {
    require(id != nullptr, CUDA_ERROR_INVALID_VALUE);
    *id = find_stream(zero, handle)->id;
  });
}
#endif

CUresult get_context(DefaultStream zero, CUstream handle, CUcontext* context) {
  return call("cuStreamGetCtx", Needs::context, [&] {
    require(context != nullptr, CUDA_ERROR_INVALID_VALUE);
    *context = reinterpret_cast<CUcontext>(find_stream(zero, handle)->context.get());
  });
}

void check_word(Address word) {
  require(word % sizeof(std::uint32_t) == 0, CUDA_ERROR_INVALID_VALUE);
  require(driver().space->accessible({word, {sizeof(std::uint32_t)}}), CUDA_ERROR_INVALID_VALUE);
}

CUresult wait_value(DefaultStream zero, CUstream handle, CUdeviceptr word, cuuint32_t value, unsigned how) {
  return call("cuStreamWaitValue32", Needs::context, [&] {
    require(how <= CU_STREAM_WAIT_VALUE_NOR, CUDA_ERROR_INVALID_VALUE);
    check_word(word);
    submit(find_stream(zero, handle), wait_work(word, value, how));
  });
}

CUresult write_value(DefaultStream zero, CUstream handle, CUdeviceptr word, cuuint32_t value, unsigned how) {
  return call("cuStreamWriteValue32", Needs::context, [&] {
    require(how <= CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, CUDA_ERROR_INVALID_VALUE);
    check_word(word);
    submit(find_stream(zero, handle), write_work(word, value));
  });
}

CUresult launch_host(DefaultStream zero, CUstream handle, CUhostFn function, void* data) {
  return call("cuLaunchHostFunc", Needs::context, [&] {
    require(function != nullptr, CUDA_ERROR_INVALID_VALUE);
    submit(find_stream(zero, handle), node_work({CUDA_HOST_NODE_PARAMS{function, data}}));
  });
}

CUresult add_callback(DefaultStream zero, CUstream handle, CUstreamCallback function, void* data,
                      unsigned flags) {
  return call("cuStreamAddCallback", Needs::context, [&] {
    require(function != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    StreamPtr stream = find_stream(zero, handle);
    forbid_capture(*stream);
    submit(stream, {CU_GRAPH_NODE_TYPE_HOST, [=](Context&) {
                      function(handle, CUDA_SUCCESS, data);
                      return CUDA_SUCCESS;
                    }});
  });
}

CUresult record_event(DefaultStream zero, CUevent event, CUstream handle) {
  return call("cuEventRecord", Needs::context,
              [&] { record(*driver().events.get(event), find_stream(zero, handle)); });
}

CUresult record_event_flags(DefaultStream zero, CUevent event, CUstream handle, unsigned flags) {
  return call("cuEventRecordWithFlags", Needs::context, [&] {
    require((flags & ~1u) == 0, CUDA_ERROR_INVALID_VALUE);
    record(*driver().events.get(event), find_stream(zero, handle));
  });
}

CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return call("cuEventElapsedTime", Needs::context, [&] {
    require(milliseconds != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto start = driver().events.get(start_handle);
    auto end = driver().events.get(end_handle);
    require(((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0, CUDA_ERROR_INVALID_HANDLE);
    std::lock_guard lock(order_lock());
    require(!start->capture && !end->capture, CUDA_ERROR_CAPTURED_EVENT);
    require(start->recorded && end->recorded, CUDA_ERROR_INVALID_HANDLE);
    require(start->recorded->done && end->recorded->done, CUDA_ERROR_NOT_READY);
    *milliseconds =
        std::chrono::duration<float, std::milli>(end->recorded->finished - start->recorded->finished).count();
  });
}

CUresult begin(DefaultStream zero, CUstream handle, CUstreamCaptureMode mode) {
  return call("cuStreamBeginCapture", Needs::context,
              [&] { begin_capture(find_stream(zero, handle), mode); });
}

CUresult end(DefaultStream zero, CUstream handle, CUgraph* out) {
  return call("cuStreamEndCapture", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = nullptr;
    auto graph = end_capture(find_stream(zero, handle));
    *out = reinterpret_cast<CUgraph>(driver().graphs.add(graph));
  });
}

CUstreamCaptureStatus status_of(const StreamPtr& stream) {
  std::lock_guard lock(order_lock());
  if (!stream->capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult is_capturing(DefaultStream zero, CUstream handle, CUstreamCaptureStatus* status) {
  return call("cuStreamIsCapturing", Needs::context, [&] {
    require(status != nullptr, CUDA_ERROR_INVALID_VALUE);
    *status = status_of(find_stream(zero, handle));
  });
}

// Fills the results that all versions share. Results that the simulator does not know stay zero.
CUresult capture_info(DefaultStream zero, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** nodes, std::size_t* count) {
  return call("cuStreamGetCaptureInfo", Needs::context, [&] {
    require(status != nullptr, CUDA_ERROR_INVALID_VALUE);
    StreamPtr stream = find_stream(zero, handle);
    *status = status_of(stream);
    if (graph != nullptr) *graph = nullptr;
    if (nodes != nullptr) *nodes = nullptr;
    if (count != nullptr) *count = 0;
    std::lock_guard lock(order_lock());
    if (id != nullptr) *id = stream->capture ? stream->capture->id : 0;
  });
}

CUresult capture_info_1(DefaultStream zero, CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return capture_info(zero, s, status, id, nullptr, nullptr, nullptr);
}
#if CUDA_VERSION >= 12030
CUresult capture_info_3(DefaultStream zero, CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id,
                        CUgraph* graph, const CUgraphNode** nodes, const CUgraphEdgeData** edges,
                        std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return capture_info(zero, s, status, id, graph, nodes, count);
}
#endif

}  // namespace

#undef cuStreamQuery
#undef cuStreamSynchronize
#undef cuStreamWaitEvent
#undef cuStreamWaitValue32
#undef cuStreamWriteValue32
#undef cuStreamGetFlags
#undef cuStreamGetPriority
#undef cuStreamGetId
#undef cuStreamGetCtx
#undef cuLaunchHostFunc
#undef cuStreamAddCallback
#undef cuEventRecord
#undef cuEventRecordWithFlags
#undef cuEventElapsedTime
#undef cuStreamEndCapture
#undef cuStreamIsCapturing
#undef cuStreamGetCaptureInfo

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* out, unsigned int flags) {
  return make_stream("cuStreamCreate", out, flags, 0);
}
CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  return make_stream("cuStreamCreateWithPriority", out, flags, priority);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle) {
  return call("cuStreamDestroy", Needs::init, [&] {
    require(handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD,
            CUDA_ERROR_INVALID_HANDLE);
    StreamPtr stream = driver().streams.remove(handle);
    std::lock_guard lock(order_lock());
    leave_capture(*stream);
    stream->closed = true;  // queued work is still done
    stream->wake.notify_all();
    if (!stream->running) stream->context->streams.erase(stream);
  });
}

SIMGPU_BOTH(cuStreamQuery, _ptsz, query, (CUstream s), s)
SIMGPU_BOTH(cuStreamSynchronize, _ptsz, synchronize_stream, (CUstream s), s)
SIMGPU_BOTH(cuStreamWaitEvent, _ptsz, wait_for_event, (CUstream s, CUevent e, unsigned f), s, e, f)
SIMGPU_BOTH(cuStreamWaitValue32, _ptsz, wait_value, (CUstream s, CUdeviceptr w, cuuint32_t v, unsigned h), s,
            w, v, h)
SIMGPU_BOTH(cuStreamWaitValue32_v2, _ptsz, wait_value, (CUstream s, CUdeviceptr w, cuuint32_t v, unsigned h),
            s, w, v, h)
SIMGPU_BOTH(cuStreamWriteValue32, _ptsz, write_value, (CUstream s, CUdeviceptr w, cuuint32_t v, unsigned h),
            s, w, v, h)
SIMGPU_BOTH(cuStreamWriteValue32_v2, _ptsz, write_value,
            (CUstream s, CUdeviceptr w, cuuint32_t v, unsigned h), s, w, v, h)
SIMGPU_BOTH(cuStreamGetFlags, _ptsz, get_flags, (CUstream s, unsigned* f), s, f)
SIMGPU_BOTH(cuStreamGetPriority, _ptsz, get_priority, (CUstream s, int* p), s, p)
#if CUDA_VERSION >= 12000
SIMGPU_BOTH(cuStreamGetId, _ptsz, get_id, (CUstream s, unsigned long long* i), s, i)
#endif
SIMGPU_BOTH(cuStreamGetCtx, _ptsz, get_context, (CUstream s, CUcontext* c), s, c)
SIMGPU_BOTH(cuLaunchHostFunc, _ptsz, launch_host, (CUstream s, CUhostFn f, void* d), s, f, d)
SIMGPU_BOTH(cuStreamAddCallback, _ptsz, add_callback, (CUstream s, CUstreamCallback f, void* d, unsigned g),
            s, f, d, g)
SIMGPU_BOTH(cuEventRecord, _ptsz, record_event, (CUevent e, CUstream s), e, s)
SIMGPU_BOTH(cuEventRecordWithFlags, _ptsz, record_event_flags, (CUevent e, CUstream s, unsigned f), e, s, f)
SIMGPU_BOTH(cuStreamBeginCapture_v2, _ptsz, begin, (CUstream s, CUstreamCaptureMode m), s, m)
SIMGPU_BOTH(cuStreamEndCapture, _ptsz, end, (CUstream s, CUgraph* g), s, g)
SIMGPU_BOTH(cuStreamIsCapturing, _ptsz, is_capturing, (CUstream s, CUstreamCaptureStatus* t), s, t)
SIMGPU_BOTH(cuStreamGetCaptureInfo, _ptsz, capture_info_1,
            (CUstream s, CUstreamCaptureStatus* t, cuuint64_t* i), s, t, i)
SIMGPU_BOTH(cuStreamGetCaptureInfo_v2, _ptsz, capture_info,
            (CUstream s, CUstreamCaptureStatus* t, cuuint64_t* i, CUgraph* g, const CUgraphNode** n,
             std::size_t* c),
            s, t, i, g, n, c)
#if CUDA_VERSION >= 12030
SIMGPU_BOTH(cuStreamGetCaptureInfo_v3, _ptsz, capture_info_3,
            (CUstream s, CUstreamCaptureStatus* t, cuuint64_t* i, CUgraph* g, const CUgraphNode** n,
             const CUgraphEdgeData** e, std::size_t* c),
            s, t, i, g, n, e, c)
#endif

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call("cuThreadExchangeStreamCaptureMode", Needs::init, [&] {
    require(mode != nullptr, CUDA_ERROR_INVALID_VALUE);
    *mode = exchange_capture_mode(*mode);
  });
}

CUresult CUDAAPI cuEventCreate(CUevent* out, unsigned int flags) {
  return call("cuEventCreate", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto event = std::make_shared<Event>();
    event->context = current_context();
    event->flags = flags;
    *out = reinterpret_cast<CUevent>(driver().events.add(event));
  });
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent handle) {
  return call("cuEventDestroy", Needs::init, [&] { driver().events.remove(handle); });
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
  return call("cuEventQuery", Needs::context, [&] {
    auto event = driver().events.get(handle);
    forbid_unsafe_call();
    std::lock_guard lock(order_lock());
    require(!event->capture, CUDA_ERROR_CAPTURED_EVENT);
    return !event->recorded || event->recorded->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  return call("cuEventSynchronize", Needs::context, [&] {
    auto event = driver().events.get(handle);
    forbid_unsafe_call();
    TaskPtr task;
    {
      std::lock_guard lock(order_lock());
      require(!event->capture, CUDA_ERROR_CAPTURED_EVENT);
      task = event->recorded;
    }
    return wait(task);
  });
}

CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent start, CUevent end) { return elapsed(ms, start, end); }
#if CUDA_VERSION >= 12080
CUresult CUDAAPI cuEventElapsedTime_v2(float* ms, CUevent start, CUevent end) {
  return elapsed(ms, start, end);
}
#endif

}  // extern "C"
