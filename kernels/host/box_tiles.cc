#include "kernels/host/box_tiles.h"

#include <algorithm>

#include "src/base/sizes.h"

namespace axccl::kernels {
namespace {

// Together the blocks are about as large as the usual first-level cache, while the sources stream past.
constexpr size_t kBlocksBytes = 24576;
constexpr size_t kMaxBlockBytes = 8192;
// For shorter runs, gathering is cheaper than a call of the flat movers.
constexpr uint64_t kMinFlatRun = 256;
// The flat movers end every streamed call with a fence, which pays only for long calls.
constexpr uint64_t kMinFencedRun = 16384;
// Runs from this length on are rows or tiles of their own when they are streamed: only the result goes through a block.
constexpr uint64_t kMinTileRun = 2048;
// Bytes of all sources of a reduction that are prefetched.
constexpr uint64_t kAheadBytes = 65536;

uint64_t Distance(int64_t stride) {
  return stride < 0 ? -static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
}

size_t RoundUp(size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

size_t PointersBytes(const BoxOperands& operands) {
  return RoundUp((operands.Num() + 2 * operands.num_src) * sizeof(char*));
}

}  // namespace

size_t TiledMove::BlockBytes(const BoxOperands& operands) {
  const size_t each = kBlocksBytes / (operands.num_src + 1) / kCacheLine * kCacheLine;
  return std::clamp(each, kCacheLine, kMaxBlockBytes);
}

size_t TiledMove::ScratchBytes(const BoxOperands& operands) {
  return PointersBytes(operands) + (operands.num_src + 1) * BlockBytes(operands);
}

TiledMove::TiledMove(const IsaTable& isa, const BoxPlan& plan, const BoxOperands& operands,
                     const BoxReduceRequest* reduce, bool non_temporal, char* scratch)
    : isa_(isa),
      plan_(plan),
      operands_(operands),
      element_bytes_(operands.element_bytes),
      non_temporal_(non_temporal),
      reduces_(reduce != nullptr),
      pointers_(reinterpret_cast<char**>(scratch)),
      next_row_(pointers_ + operands.Num()),
      later_row_(next_row_ + operands.num_src),
      blocks_(scratch + PointersBytes(operands)),
      block_bytes_(BlockBytes(operands)) {
  request_ = reduces_ ? ArithmeticOf(*reduce) : ReduceRequest{};
  request_.dst = reinterpret_cast<void**>(pointers_);
  request_.num_dst = operands.num_dst;
  request_.src = reinterpret_cast<void**>(pointers_ + operands.num_dst);
  request_.num_src = operands.num_src;
}

int64_t TiledMove::Stride(const BoxOperand& operand, int i) const {
  return plan_.Stride(operand, dim_[i].of_plan, element_bytes_);
}

bool TiledMove::SharesStrides(int outer, int inner) const {
  for (int i = 0; i < operands_.Num(); ++i) {
    const BoxOperand& operand = operands_.At(i);
    const uint64_t whole = dim_[inner].extent * static_cast<uint64_t>(Stride(operand, inner));
    if (static_cast<uint64_t>(Stride(operand, outer)) != whole) return false;
  }
  return true;
}

// Sorts dimensions by descending stride of the first destination, and merges those that are contiguous in all operands.
void TiledMove::Arrange(const BoxPiece& piece) {
  piece_ = &piece;
  int num = 0;
  for (int d = piece.first; d < plan_.num_dims; ++d) {
    const uint64_t extent = d == piece.first ? piece.extent : plan_.size[d];
    if (extent == 1) continue;
    const uint64_t distance = Distance(plan_.Stride(operands_.dst[0], d, element_bytes_));
    int at = num++;
    for (; at > 0 && Distance(Stride(operands_.dst[0], at - 1)) < distance; --at) dim_[at] = dim_[at - 1];
    dim_[at] = {d, extent, 1, 0};
  }
  num_dims_ = num > 0 ? 1 : 0;
  for (int i = 1; i < num; ++i) {
    dim_[num_dims_] = dim_[i];
    if (SharesStrides(num_dims_ - 1, num_dims_)) {
      dim_[num_dims_].extent *= dim_[num_dims_ - 1].extent;
      dim_[num_dims_ - 1] = dim_[num_dims_];
    } else {
      ++num_dims_;
    }
  }
}

// The bytes of the contiguous runs that all operands share, 0 if there are none.
uint64_t TiledMove::FlatRun() const {
  if (num_dims_ == 0) return element_bytes_;
  for (int i = 0; i < operands_.Num(); ++i) {
    if (Stride(operands_.At(i), num_dims_ - 1) != static_cast<int64_t>(element_bytes_)) return 0;
  }
  return dim_[num_dims_ - 1].extent * element_bytes_;
}

// Steps to the next tile in the first `num_dims` dimensions.
bool TiledMove::NextTile(int num_dims) {
  for (int i = num_dims - 1; i >= 0; --i) {
    dim_[i].at += dim_[i].tile;
    if (dim_[i].at < dim_[i].extent) return true;
    dim_[i].at = 0;
  }
  return false;
}

char* TiledMove::TileAddress(const BoxOperand& operand) const {
  uint64_t offset = 0;
  for (int i = 0; i < num_dims_; ++i) offset += dim_[i].at * static_cast<uint64_t>(Stride(operand, i));
  return piece_->Address(plan_, operand, element_bytes_) + static_cast<int64_t>(offset);
}

void TiledMove::Flat(uint64_t count) {
  if (reduces_) {
    request_.count = count;
    isa_.reduce(request_);
  } else {
    isa_.copy(request_.dst, request_.num_dst, request_.src[0], count * element_bytes_, request_.non_temporal);
  }
}

// Makes one call for each run. The innermost loop around the runs only adds strides.
void TiledMove::RunFlat() {
  const int num = operands_.Num();
  const int inner = num_dims_ - 2;
  const uint64_t count = num_dims_ == 0 ? 1 : dim_[num_dims_ - 1].extent;
  const uint64_t repeats = inner < 0 ? 1 : dim_[inner].extent;
  request_.non_temporal = non_temporal_;
  do {
    for (int i = 0; i < num; ++i) pointers_[i] = TileAddress(operands_.At(i));
    for (uint64_t r = 0; r < repeats; ++r) {
      if (r > 0) {
        for (int i = 0; i < num; ++i) pointers_[i] += Stride(operands_.At(i), inner);
      }
      Flat(count);
    }
  } while (NextTile(inner));
}

// How many rows ahead to prefetch to the second-level cache: early enough, within a small part of that cache.
uint64_t TiledMove::RowsAhead() const {
  const uint64_t row = request_.count * element_bytes_;
  return std::max<uint64_t>(1, kAheadBytes / (row * static_cast<uint64_t>(operands_.num_src)));
}

// Reductions around the cache, without a fence after each row. Hardware prefetchers follow neither rows that skip pages
// nor many short ones, so this prefetches the next rows.
void TiledMove::RunRows() {
  const int num_dst = operands_.num_dst;
  const int num_src = operands_.num_src;
  const int inner = num_dims_ - 2;
  request_.count = dim_[num_dims_ - 1].extent;
  const uint64_t ahead = RowsAhead();
  do {
    for (int i = 0; i < operands_.Num(); ++i) pointers_[i] = TileAddress(operands_.At(i));
    for (uint64_t r = dim_[inner].extent; r > 0; --r) {
      for (int k = 0; k < num_src; ++k) {
        const int64_t stride = Stride(operands_.src[k], inner);
        next_row_[k] = pointers_[num_dst + k] + stride;
        later_row_[k] = pointers_[num_dst + k] + static_cast<int64_t>(ahead) * stride;
      }
      isa_.reduce_row(request_, r > 1 ? reinterpret_cast<void**>(next_row_) : nullptr,
                      r > ahead ? reinterpret_cast<void**>(later_row_) : nullptr);
      for (int d = 0; d < num_dst; ++d) pointers_[d] += Stride(operands_.dst[d], inner);
      for (int k = 0; k < num_src; ++k) pointers_[num_dst + k] = next_row_[k];
    }
  } while (NextTile(inner));
}

// Takes a cache line along the fastest dimension of every operand, so that each line is used completely, then as much
// as the block holds along the fastest dimension of the destination.
void TiledMove::ChooseTile(uint64_t flat_run) {
  uint64_t room = block_bytes_ / element_bytes_;
  if (flat_run >= kMinTileRun) {
    dim_[num_dims_ - 1].tile = std::min(dim_[num_dims_ - 1].extent, room);
    return;
  }
  const uint64_t line = std::max<uint64_t>(1, kCacheLine / element_bytes_);
  for (int k = 0; k < operands_.Num(); ++k) {
    int nearest = -1;
    uint64_t least = ~uint64_t{0};
    for (int i = num_dims_ - 1; i >= 0; --i) {
      const uint64_t distance = Distance(Stride(operands_.At(k), i));
      if (distance == 0 || distance >= least) continue;
      nearest = i;
      least = distance;
    }
    if (nearest < 0 || dim_[nearest].tile > 1) continue;
    dim_[nearest].tile = std::min({dim_[nearest].extent, line, room});
    room /= dim_[nearest].tile;
  }
  for (int i = num_dims_ - 1; i >= 0; --i) {
    const uint64_t times = std::min(room, (dim_[i].extent + dim_[i].tile - 1) / dim_[i].tile);
    dim_[i].tile = std::min(dim_[i].extent, dim_[i].tile * times);
    room /= times;
  }
}

// The extents of the current tile, and its number of elements.
uint64_t TiledMove::CutTile() {
  uint64_t elements = 1;
  for (int i = 0; i < num_dims_; ++i) {
    cut_[i] = std::min(dim_[i].tile, dim_[i].extent - dim_[i].at);
    elements *= cut_[i];
  }
  return elements;
}

bool TiledMove::ContiguousInTile(const BoxOperand& operand) const {
  uint64_t expected = element_bytes_;
  for (int i = num_dims_ - 1; i >= 0; --i) {
    if (cut_[i] == 1) continue;
    if (static_cast<uint64_t>(Stride(operand, i)) != expected) return false;
    expected *= cut_[i];
  }
  return true;
}

void TiledMove::Gather(const BoxOperand& operand, char* block) const {
  CopyNest nest{block, TileAddress(operand), element_bytes_, false, num_dims_, {}};
  int64_t packed = static_cast<int64_t>(element_bytes_);
  for (int i = num_dims_ - 1; i >= 0; --i) {
    nest.dim[i] = {cut_[i], packed, Stride(operand, i)};
    packed *= static_cast<int64_t>(cut_[i]);
  }
  RunNest(isa_, &nest);
}

void TiledMove::Scatter(const BoxOperand& operand, const char* block) const {
  CopyNest nest{TileAddress(operand), block, element_bytes_, non_temporal_, num_dims_, {}};
  int64_t packed = static_cast<int64_t>(element_bytes_);
  for (int i = num_dims_ - 1; i >= 0; --i) {
    nest.dim[i] = {cut_[i], Stride(operand, i), packed};
    packed *= static_cast<int64_t>(cut_[i]);
  }
  RunNest(isa_, &nest);
}

void TiledMove::MoveTile() {
  const uint64_t elements = CutTile();
  const int num_dst = operands_.num_dst;
  bool direct = !non_temporal_;
  for (int d = 0; d < num_dst && direct; ++d) direct = ContiguousInTile(operands_.dst[d]);
  for (int k = 0; k < operands_.num_src; ++k) {
    const BoxOperand& operand = operands_.src[k];
    char*& pointer = pointers_[num_dst + k];
    if (ContiguousInTile(operand)) {
      pointer = TileAddress(operand);
    } else {
      pointer = blocks_ + (k + 1) * block_bytes_;
      Gather(operand, pointer);
    }
  }
  if (direct) {
    request_.num_dst = num_dst;
    for (int d = 0; d < num_dst; ++d) pointers_[d] = TileAddress(operands_.dst[d]);
    Flat(elements);
    return;
  }
  const char* result = pointers_[num_dst];
  if (reduces_) {
    request_.num_dst = 1;
    pointers_[0] = blocks_;
    Flat(elements);
    result = blocks_;
  }
  for (int d = 0; d < num_dst; ++d) Scatter(operands_.dst[d], result);
}

void TiledMove::Run(const BoxPiece& piece) {
  Arrange(piece);
  request_.num_dst = operands_.num_dst;
  const uint64_t flat_run = FlatRun();
  if ((num_dims_ <= 1 && flat_run > 0) || flat_run >= (non_temporal_ ? kMinFencedRun : kMinFlatRun)) {
    RunFlat();
    return;
  }
  if (reduces_ && non_temporal_ && flat_run >= kMinTileRun) {
    RunRows();
    return;
  }
  ChooseTile(flat_run);
  request_.non_temporal = false;
  do {
    MoveTile();
  } while (NextTile(num_dims_));
}

}  // namespace axccl::kernels
