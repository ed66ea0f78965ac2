// Pipelines of GPU ranks: each start is a launch of the interpreter on a stream of the pipeline's own, of the highest
// priority. The application's stream resets the words, then the pipeline's stream goes on from there, behind what was
// launched before in the order of the channel. What else the application's streams do is ordered by events and by the
// words, which are in memory of the device. The kernel also stores into host memory which chunks have come, so threads
// look there.
//
// The ranks of a pipeline read each other's memory, that of other processes as pipeline_buffers.h says.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/exec/cuda/interpreter.h"
#include "src/exec/cuda/rank.h"
#include "src/exec/platform/pipeline.h"

namespace axccl::exec {

class CudaPipeline final : public Pipeline {
 public:
  // As RankDevice::MakePipeline. The rank must live as long as its communicator.
  static Result<std::shared_ptr<Pipeline>> Make(CudaRank* rank, Channel* on, std::vector<PipelinePart> parts);
  ~CudaPipeline() override;

  Status Start(StreamRef stream) override;
  Status Finish(StreamRef stream) override;
  Status Wait(int64_t chunk) override;
  Result<bool> Test(int64_t chunk) override;
  Status StreamWait(int64_t chunk, StreamRef stream) override;
  void Ready(int64_t chunk) override;
  Status StreamReady(int64_t chunk, StreamRef stream) override;
  void WaitIdle() override;
  Word* Expose(Side side) override;
  size_t scratch_bytes() const override { return 0; }
  size_t memory_bytes() const override { return bytes_; }
  int blocks() const override { return static_cast<int>(blocks_); }

 private:
  struct Part {
    Channel* channel;  // alive while the communicator is
    Call call;
    const char* algorithm;
  };
  // The offsets of what a part has in the memory on the device.
  struct Place {
    size_t sliced, table;
    size_t first[2], num[2];  // its words of each side, counted from the side's first one
  };

  CudaPipeline(CudaRank* rank, const Channel& on)
      : rank_(rank), device_(rank->device()), owner_(on.owner()), order_(on.order()) {}
  Status CheckPart(const PipelinePart& part) const;
  std::vector<Place> LayOut(const std::vector<PipelinePart>& parts);
  Status MakeStreams();
  Status MakeTasks(Channel* on, const std::vector<PipelinePart>& parts);
  Status MakeZeros(Channel* on, const PipelinePart& part, const Place& place, const Lent& table);
  Status CheckStream(CUstream stream) const;
  Status Enqueue(CUstream stream);
  Status FillZeros();
  Status Launch(const std::vector<kernels::cuda::Task>& tasks);
  Status Use(CUstream stream, const char* what, CUresult (*enqueue)(CUstream, CUdeviceptr), CUdeviceptr word);
  Status DeclareReady(CUdeviceptr word);
  bool HasCome(int64_t chunk) const {
    return __atomic_load_n(&came_[chunk], __ATOMIC_ACQUIRE) == starts_.load(std::memory_order_relaxed);
  }
  CUdeviceptr WordOf(Side side, int64_t chunk) const {
    return memory_ + ((side == kIn ? 0 : chunks_[kIn]) + static_cast<size_t>(chunk)) * sizeof(uint32_t);
  }

  CudaRank* const rank_;
  const device::cuda::Device* const device_;
  ChannelOwner* const owner_;
  const device::host::TimelinePtr order_;  // of the channel
  size_t chunks_[2] = {};
  size_t bytes_ = 0;
  CUdeviceptr memory_ = 0;    // the words, then what tasks refer to
  uint32_t* came_ = nullptr;  // kernels::cuda::Sliced::came, of all parts
  std::vector<Part> parts_;
  std::vector<kernels::cuda::Task> tasks_;  // of the parts
  std::unique_ptr<CudaChannel> local_;      // for outputs that get nothing
  std::vector<kernels::cuda::Task> zeros_;  // they
  size_t first_zero_ = 0;                   // their first word
  const CudaInterpreter* interpreter_ = nullptr;
  unsigned lanes_ = 1, threads_ = 0, blocks_ = 1;
  CUstream stream_ = nullptr;
  CUevent reset_ = nullptr, done_ = nullptr;  // of the last start
  std::atomic<uint32_t> starts_{0};           // also the number of operations of each part's channel
  std::mutex mutex_;                          // guards what follows
  CUstream ready_ = nullptr;                  // on which threads declare chunks ready
  uint32_t ready_for_ = 0;                    // the start whose reset it has waited for
  // The streams that wait for words or write them, by id, and when they have done so for the last time.
  std::vector<std::pair<unsigned long long, CUevent>> users_;
};

}  // namespace axccl::exec
