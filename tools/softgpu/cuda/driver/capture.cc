// Stream capture: the entry points.
#include "tools/softgpu/cuda/driver/graph_nodes.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return WithStream(handle, [&](const StreamPtr& stream) { return BeginCapture(stream, mode, NewGraph(), {}); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData*, size_t count, CUstreamCaptureMode mode) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    return WithGraph(graph, [&](const GraphPtr& found) {
      std::vector<Node*> after;
      const CUresult error = ReadNodes(dependencies, count, &after);
      return error != CUDA_SUCCESS ? error : BeginCapture(stream, mode, found, after);
    });
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    *graph = nullptr;
    GraphPtr captured;
    const CUresult error = EndCapture(stream, &captured);
    if (error == CUDA_SUCCESS) *graph = AddGraph(std::move(captured));
    return error;
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return cuStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    const StreamLock lock = LockStreams();
    if (edges != nullptr) *edges = nullptr;
    if (stream->capture == nullptr) {
      *status = CU_STREAM_CAPTURE_STATUS_NONE;
      // The legacy stream has no status while a stream that it waits for captures.
      return CheckLegacy(*stream);
    }
    *status = stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id != nullptr) *id = stream->capture->id;
    if (graph != nullptr) *graph = AddGraph(stream->capture->graph);
    // Valid until the stream's next operation, as CUDA promises.
    if (dependencies != nullptr) *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
    if (count != nullptr) *count = stream->capture_tail.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* dependencies, const CUgraphEdgeData*,
                                           size_t count, unsigned flags) {
  return WithStream(handle, [&](const StreamPtr& stream) {
    std::vector<Node*> nodes;
    if (const CUresult error = ReadNodes(dependencies, count, &nodes); error != CUDA_SUCCESS) return error;
    const StreamLock lock = LockStreams();
    if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
    stream->capture_tail.insert(stream->capture_tail.end(), nodes.begin(), nodes.end());
    return CUDA_SUCCESS;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  *mode = ExchangeCaptureMode(*mode);
  return CUDA_SUCCESS;
}
