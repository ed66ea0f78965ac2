// The captures of stream.h: a stream that captures turns its operations into nodes of a graph.
#include <algorithm>
#include <set>

#include "tools/softgpu/cuda/stream.h"

namespace softgpu::cuda {
namespace {

// All captures under way. Guarded by the lock of stream.h.
std::vector<CapturePtr>& Captures() {
  static auto* const captures = new std::vector<CapturePtr>;
  return *captures;
}

thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void Leave(const CapturePtr& capture) {
  for (const StreamPtr& stream : capture->streams) {
    stream->capture.reset();
    stream->capture_tail.clear();
  }
  capture->streams.clear();
  capture->graph.reset();
  std::erase(Captures(), capture);
}

bool AllJoined(const Capture& capture) {
  std::set<const Node*> reached;
  std::vector<const Node*> open(capture.origin->capture_tail.begin(), capture.origin->capture_tail.end());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  for (const StreamPtr& stream : capture.streams) {
    for (const Node* node : stream->capture_tail) {
      if (!reached.contains(node)) return false;
    }
  }
  return true;
}

}  // namespace

CUresult CaptureState(const Stream& stream) {
  return stream.capture != nullptr && stream.capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult AppendCaptured(Stream* stream, OperationPtr operation) {
  if (const CUresult error = CaptureState(*stream); error != CUDA_SUCCESS) return error;
  stream->capture_tail = {stream->capture->graph->Add(std::move(operation), stream->capture_tail)};
  return CUDA_SUCCESS;
}

CUresult JoinCapture(const StreamPtr& stream, const CapturePtr& capture, const std::vector<Node*>& nodes) {
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture != nullptr && stream->capture != capture) {
    stream->capture->invalid = capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream->capture == nullptr) {
    if (stream->legacy) {
      capture->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    stream->capture = capture;
    capture->streams.push_back(stream);
  }
  for (Node* node : nodes) {
    std::vector<Node*>& tail = stream->capture_tail;
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult CheckLegacy(const Stream& stream) {
  if (!stream.legacy) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const StreamPtr& other : stream.context->streams) {
    if (!other->blocking() || other->capture == nullptr) continue;
    other->capture->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

CUresult CheckUnsafeCall() {
  if (t_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const StreamLock lock = LockStreams();
  CUresult result = CUDA_SUCCESS;
  for (const CapturePtr& capture : Captures()) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool disturbed =
        own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
            : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && t_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!disturbed) continue;
    capture->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult CheckCapturesOf(const ContextPtr& context) {
  const StreamLock lock = LockStreams();
  CUresult result = CUDA_SUCCESS;
  for (const CapturePtr& capture : Captures()) {
    if (capture->streams.front()->context != context) continue;
    capture->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode) { return std::exchange(t_mode, mode); }

CUresult BeginCapture(const StreamPtr& stream, CUstreamCaptureMode mode, GraphPtr graph, std::vector<Node*> after) {
  const StreamLock lock = LockStreams();
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  static uint64_t last_id = 0;
  auto capture = std::make_shared<Capture>();
  capture->id = ++last_id;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->own_graph = HandlesOf<Graph>().Find(graph.get()) == nullptr;
  capture->graph = std::move(graph);
  capture->origin = stream.get();
  capture->streams = {stream};
  stream->capture = capture;
  stream->capture_tail = std::move(after);
  Captures().push_back(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult EndCapture(const StreamPtr& stream, GraphPtr* graph) {
  const StreamLock lock = LockStreams();
  const CapturePtr capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.get()) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id()) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && !AllJoined(*capture)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (result == CUDA_SUCCESS) *graph = capture->graph;
  // It may have got a handle when the capture was queried.
  if (result != CUDA_SUCCESS && capture->own_graph) HandlesOf<Graph>().Remove(capture->graph.get());
  Leave(capture);
  return result;
}

}  // namespace softgpu::cuda
