// The device's movers, compiled for fibers.
#include "tests/kernels/cuda/movers_on_fibers.h"

#include <functional>
#include <utility>

#include "kernels/cuda/copy.h"
#include "kernels/cuda/reduce.h"

namespace axccl::kernels::cuda {

namespace {

// Copies the fields that both kinds of request share.
template <class Request>
void Describe(const Request& request, uint64_t count, Move* move) {
  *move = Move{};
  move->count = count;
  move->divisor = request.post_divisor;
  move->element = static_cast<uint32_t>(ElementSize(request.type));
  move->num_dst = static_cast<uint32_t>(request.num_dst);
  move->num_src = static_cast<uint32_t>(request.num_src);
  move->type = request.type;
  move->combine = request.combine;
  move->scaled = request.pre != nullptr;
  move->round_factored = request.round_factored;
  for (int k = 0; k < request.num_src && request.pre != nullptr; ++k)
    move->factor[request.num_dst + k] = request.pre[k];
}

bool RunBlock(uint32_t threads, uint64_t seed, std::function<void()> body, fibers::Bulk bulk, Watch watch = nullptr) {
  fibers::Launch launch;
  launch.threads = threads;
  launch.body = std::move(body);
  fibers::Options options;
  options.seed = seed;
  options.bulk = bulk;
  options.watch = std::move(watch);
  return fibers::Run({{launch}}, options);
}

}  // namespace

bool ReduceOnFibers(const ReduceRequest& request, uint32_t threads, uint64_t seed, fibers::Bulk bulk) {
  return ReduceRowsOnFibers(request, 0, 0, threads, seed, bulk);
}

bool ReduceRowsOnFibers(const ReduceRequest& request, uint32_t rows, uint64_t flag, uint32_t threads, uint64_t seed,
                        fibers::Bulk bulk) {
  struct State {
    Move move;
    BulkRing ring;
  };
  const auto body = [&request, rows, flag] {
    AXCCL_SHARED(State, state);
    Move& move = state.move;
    if (ThreadIndex() == 0) {
      Describe(request, request.count, &move);
      move.packing = rows != 0 ? Packing::kRows : Packing::kNone;
      move.flag = flag;
      state.ring.Begin();
      move.ring = &state.ring;
      for (int d = 0; d < request.num_dst; ++d) move.place[d] = static_cast<uint8_t*>(request.dst[d]);
      for (int k = 0; k < request.num_src; ++k)
        move.place[request.num_dst + k] = static_cast<uint8_t*>(const_cast<void*>(request.src[k]));
      for (uint32_t i = 0; i < move.num_operands(); ++i) {
        if ((rows >> i & 1) != 0) move.place[i] = Tagged(move.place[i], true);
      }
    }
    Barrier();
    MoveElements(move);
  };
  return RunBlock(threads, seed, body, bulk);
}

bool MoveBoxOnFibers(const BoxReduceRequest& request, uint32_t threads, uint64_t seed, uint32_t* tiles, Watch watch,
                     fibers::Bulk bulk) {
  struct State {
    Move move;
    alignas(16) uint8_t tile[kTileBytes];
    BulkRing ring;
    Box box;
  };
  const auto body = [&request, tiles] {
    AXCCL_SHARED(State, state);
    Move& move = state.move;
    Box& box = state.box;
    const BoxRange& range = request.range;
    if (ThreadIndex() == 0) {
      Describe(request, range.count, &move);
      move.scales_result = request.post != nullptr;
      if (request.post != nullptr) move.post = *request.post;
      box.tile_memory = state.tile;
      state.ring.Begin();
      move.ring = &state.ring;
      box.Begin(static_cast<uint32_t>(range.num_dims), range.sizes, move.element, range.begin, range.count);
    }
    Barrier();
    for (uint32_t i = ThreadIndex(); i < move.num_operands(); i += NumThreads()) {
      const BoxOperand& operand = i < move.num_dst ? request.dst[i] : request.src[i - move.num_dst];
      move.place[i] = box.Put(i, static_cast<uint8_t*>(operand.data), operand.strides);
    }
    Barrier();
    if (ThreadIndex() == 0) box.End(move.place, move.num_operands(), !move.IsCopy());
    Barrier();
    MoveBox(move, box);
    if (ThreadIndex() == 0 && tiles != nullptr) *tiles = box.is_run ? 0 : box.tiles;
  };
  return RunBlock(threads, seed, body, bulk, std::move(watch));
}

}  // namespace axccl::kernels::cuda
