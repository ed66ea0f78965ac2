// pipeline_cost: what a chunk costs, and a start and finish, beside calls that do the same.
#include <algorithm>
#include <optional>

#include "perf/overlap/cost.h"

namespace axccl::perf::overlap {
namespace {

constexpr int kRanks = 2;

// Contestants, of which each takes a turn in each round; the order turns round, too. us of a step, medians.
class Contest {
 public:
  Contest(const CostRank& rank, int steps) : rank_(rank), steps_(steps) {}
  size_t Add(std::function<void()> step) {
    contestants_.push_back({std::move(step), {}});
    return contestants_.size() - 1;
  }
  void Run(int rounds) {
    for (int round = 0; round <= rounds; ++round) {  // the first one does not count
      for (size_t i = 0; i < contestants_.size(); ++i) {
        Contestant& one = contestants_[round % 2 == 0 ? i : contestants_.size() - 1 - i];
        rank_.exchange->Barrier();
        const double begin = SecondsNow();
        for (int step = 0; step < steps_; ++step) one.step();
        const double microseconds = rank_.Slowest(SecondsNow() - begin) / steps_ * 1e6;
        if (round > 0) one.times.push_back(microseconds);
      }
    }
  }
  double Median(size_t i) const { return Percentile(contestants_[i].times, 0.5); }
  // The median over the rounds of the ratio of two that follow each other.
  double Ratio(size_t i, size_t j) const {
    std::vector<double> ratios;
    for (size_t r = 0; r < contestants_[i].times.size(); ++r)
      ratios.push_back(contestants_[i].times[r] / contestants_[j].times[r]);
    return Percentile(ratios, 0.5);
  }

 private:
  struct Contestant {
    std::function<void()> step;
    std::vector<double> times;
  };
  const CostRank& rank_;
  const int steps_;
  std::vector<Contestant> contestants_;
};

// A call for each slice, all on one stream or each on a stream of its own, with an event behind each.
class SliceCalls {
 public:
  SliceCalls(const CostRank& rank, int64_t slices, int64_t chunk_bytes, char* in, char* out)
      : rank_(rank), chunk_bytes_(chunk_bytes), in_(in), out_(out), block_bytes_(slices * chunk_bytes) {
    streams_.resize(static_cast<size_t>(slices));
    ended_.resize(streams_.size());
    for (axcclStream_t& stream : streams_) PERF_CALL(axcclStreamCreate(&stream, axcclStreamNonBlocking));
    for (axcclEvent_t& event : ended_) PERF_CALL(axcclEventCreate(&event));
    PERF_CALL(axcclEventCreate(&begun_));
  }
  ~SliceCalls() {
    for (const axcclStream_t stream : streams_) PERF_CALL(axcclStreamDestroy(stream));
    for (const axcclEvent_t event : ended_) PERF_CALL(axcclEventDestroy(event));
    PERF_CALL(axcclEventDestroy(begun_));
  }
  SliceCalls(const SliceCalls&) = delete;
  SliceCalls& operator=(const SliceCalls&) = delete;

  void Step(bool own_streams) {
    const int64_t sizes[] = {1, chunk_bytes_}, out_sizes[] = {rank_.ranks, chunk_bytes_}, strides[] = {block_bytes_, 1};
    axcclView_t in = AXCCL_VIEW_INITIALIZER, out = AXCCL_VIEW_INITIALIZER;
    in.datatype = out.datatype = ncclInt8;
    in.num_dims = out.num_dims = 2;
    in.sizes = sizes, out.sizes = out_sizes, out.strides = strides;
    if (own_streams) PERF_CALL(axcclEventRecord(begun_, rank_.stream));
    for (size_t s = 0; s < streams_.size(); ++s) {
      const axcclStream_t stream = own_streams ? streams_[s] : rank_.stream;
      in.data = in_ + static_cast<int64_t>(s) * chunk_bytes_;
      out.data = out_ + static_cast<int64_t>(s) * chunk_bytes_;
      if (own_streams) PERF_CALL(axcclStreamWaitEvent(stream, begun_));
      PERF_CALL(axcclAllGather(1, &in, &out, 0, axcclDefaultChannel(rank_.comm), nullptr, axcclStreamToCuda(stream)));
      PERF_CALL(axcclEventRecord(ended_[s], stream));
    }
    for (const axcclEvent_t event : ended_) PERF_CALL(axcclEventSynchronize(event));
    for (size_t s = 0; own_streams && s < streams_.size(); ++s)
      PERF_CALL(axcclStreamWaitEvent(rank_.stream, ended_[s]));
    PERF_CALL(axcclStreamSynchronize(rank_.stream));
  }

 private:
  const CostRank& rank_;
  const int64_t chunk_bytes_;
  char *const in_, *const out_;
  const int64_t block_bytes_;
  std::vector<axcclStream_t> streams_;
  std::vector<axcclEvent_t> ended_;
  axcclEvent_t begun_ = nullptr;
};

// The loop of pipelines.h; without `asks`, of a program that knows the numbers.
void StepOfChunks(const GatherPipeline& pipeline, int64_t chunks, bool asks) {
  axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
  pipeline.Start();
  for (int64_t i = 0; i < chunks; ++i) {
    chunk.number = i;
    if (asks) PERF_CALL(axcclPipelineGetChunk(pipeline.handle(), axcclOut, i, &chunk));
    PERF_CALL(axcclPipelineWait(pipeline.handle(), chunk.number));
  }
  pipeline.Finish();
}

}  // namespace

void MeasureChunks(int rounds) {
  constexpr int64_t kSlices = 64, kChunkBytes = 64;
  constexpr int kSteps = 100;
  RunRanks(kRanks, 1, [&](const CostRank& rank, void*) {
    Bytes in(kSlices * kChunkBytes), out(kRanks * kSlices * kChunkBytes);
    GatherPipeline one(rank, 1, kChunkBytes, 0, in.data(), out.data());
    GatherPipeline many(rank, kSlices, kChunkBytes, 0, in.data(), out.data());
    SliceCalls one_call(rank, 1, kChunkBytes, in.data(), out.data());
    SliceCalls many_calls(rank, kSlices, kChunkBytes, in.data(), out.data());
    Contest contest(rank, kSteps);
    const size_t pipeline_1 = contest.Add([&] { StepOfChunks(one, kRanks, true); });
    const size_t pipeline_s = contest.Add([&] { StepOfChunks(many, kRanks * kSlices, true); });
    const size_t numbers_s = contest.Add([&] { StepOfChunks(many, kRanks * kSlices, false); });
    const size_t call_1 = contest.Add([&] { one_call.Step(false); });
    const size_t calls_s = contest.Add([&] { many_calls.Step(false); });
    const size_t own_stream_1 = contest.Add([&] { one_call.Step(true); });
    const size_t own_streams_s = contest.Add([&] { many_calls.Step(true); });
    contest.Run(rounds);
    if (rank.rank != 0) return;
    const auto each = [&](size_t with, size_t without) {
      return (contest.Median(with) - contest.Median(without)) / (kSlices - 1);
    };
    const double calls = std::min(each(calls_s, call_1), each(own_streams_s, own_stream_1));
    PrintFigure("chunk.pipeline_1", contest.Median(pipeline_1), "us");
    PrintFigure("chunk.pipeline_64", contest.Median(pipeline_s), "us");
    PrintFigure("chunk.pipeline", each(pipeline_s, pipeline_1), "us");
    PrintFigure("chunk.pipeline_known_numbers", each(numbers_s, pipeline_1), "us");
    PrintFigure("chunk.calls_one_stream", each(calls_s, call_1), "us");
    PrintFigure("chunk.calls_own_streams", each(own_streams_s, own_stream_1), "us");
    PrintFigure("chunk.of_calls", each(pipeline_s, pipeline_1) / calls, "x");
  });
}

void MeasureCalls(int rounds) {
  struct Size {
    const char* name;
    int64_t bytes;  // of the output
    int steps;
  };
  RunRanks(kRanks, 1, [&](const CostRank& rank, void*) {
    for (const Size& size : {Size{"8B", 8, 1000}, Size{"1MiB", 1 << 20, 50}}) {
      Bytes in(size.bytes / kRanks), out(size.bytes);
      GatherPipeline pipeline(rank, 1, size.bytes / kRanks, 0, in.data(), out.data());
      SliceCalls views(rank, 1, size.bytes / kRanks, in.data(), out.data());
      Contest contest(rank, size.steps);
      const size_t nccl = contest.Add([&] {
        PERF_CALL(ncclAllGather(in.data(), out.data(), static_cast<size_t>(size.bytes / kRanks), ncclInt8, rank.comm,
                                rank.cuda()));
        PERF_CALL(axcclStreamSynchronize(rank.stream));
      });
      const size_t with_pipeline = contest.Add([&] {
        pipeline.Start();
        pipeline.Finish();
      });
      contest.Run(rounds);
      if (rank.rank != 0) continue;
      const std::string name = std::string("call.") + size.name;
      PrintFigure(name + ".all_gather", contest.Median(nccl), "us");
      PrintFigure(name + ".pipeline", contest.Median(with_pipeline), "us");
      PrintFigure(name + ".ratio", contest.Ratio(with_pipeline, nccl), "x");
    }
  });
}

}  // namespace axccl::perf::overlap
