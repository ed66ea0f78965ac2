// The code of the movers that reduce (movers.h). Must be included only once in a program.
//
// A mover is one (format, combination), with everything dispatched outside its loop; for factors and divisors there is
// a branch that all threads take alike. All sources of a piece are read and combined before its destinations are
// written.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/combine.h"
#include "kernels/cuda/fold.h"
#include "kernels/cuda/formats.h"
#include "kernels/cuda/movers.h"
#include "kernels/cuda/pieces.h"

namespace axccl::kernels::cuda {

// ---- where Reducer::AllTogether finds whole pieces ----

// Of operands that are in one run of memory each, and have the same alignment.
struct AlignedRun {
  static AXCCL_DEVICE uint32_t Number(const Pieces& pieces) { return pieces.aligned; }
  static AXCCL_DEVICE uint8_t* Address(const Pieces& pieces, uint32_t, uint8_t* place, uint32_t piece) {
    return place + pieces.head + 16 * piece;
  }
  static AXCCL_DEVICE Raw Load(const uint8_t* p) { return LoadRaw(p); }
  static AXCCL_DEVICE void Store(uint8_t* p, const Raw& raw) { StoreRaw(p, raw); }
};

struct AlignedBox : AlignedRun {
  static AXCCL_DEVICE uint8_t* Address(const Pieces& pieces, uint32_t operand, uint8_t* place, uint32_t piece) {
    return InShared(*pieces.box).Address(operand, place, piece);
  }
};

// Of operands in one run of memory each, whose alignments differ, but are those of words of 4 bytes.
struct RunOfWords {
  static AXCCL_DEVICE uint32_t Number(const Pieces& pieces) { return pieces.bytes / 16; }
  static AXCCL_DEVICE uint8_t* Address(const Pieces&, uint32_t, uint8_t* place, uint32_t piece) {
    return place + 16 * piece;
  }
  static AXCCL_DEVICE Raw Load(const uint8_t* p) { return LoadWords(p, 4); }
  static AXCCL_DEVICE void Store(uint8_t* p, const Raw& raw) { StoreWords(p, raw, 4); }
};

// ---- reducer ----

template <class Format, class Op>
struct Reducer {
  using F = Fold<Format, Op>;
  // Whole pieces that a thread processes together. More of them hide more of the latency of another device's memory.
  // Operations on single bytes need the registers themselves.
  static constexpr uint32_t kTogether = Format::kBytes > 1 ? 2 : 1;
  // Sources of which a thread loads a piece before it combines them, if some are slots of rows.
  static constexpr uint32_t kAhead = 4;
  // With 16 lanes each, there are too few registers.
  static constexpr bool kPossible = Format::kLanes <= 8;
  // Whether boxes, words and factors are for AllTogether, too: worth the code and registers for sums of floats.
  static constexpr bool kFull = std::is_same_v<Op, Sum> && Format::kIsFloat && Format::kBytes > 1;

  const Move& move;
  const Pieces& pieces;

  // Reduces all pieces that `Where` finds.
  template <class Where>
  AXCCL_DEVICE void AllTogether() const {
    const uint32_t step = NumThreads();
#pragma unroll 1
    for (uint32_t first = ThreadIndex(); first < Where::Number(pieces); first += kTogether * step)
      Together<Where>(first, step);
  }
  // Whether the move is one of those that AllTogether can do.
  AXCCL_DEVICE bool CanTogether() const {
    if (!kPossible) return false;
    return kFull || (pieces.box == nullptr && !move.scaled && move.divisor <= 1);
  }
  // While one source is combined, the next is being loaded. They take turns with two sets of registers: to move one set
  // to the other would wait for the loads.
  template <class Where>
  AXCCL_DEVICE void Together(uint32_t first, uint32_t step) const {
    Raw even[kTogether], odd[kTogether];
    F fold[kTogether];
    const uint32_t num_src = move.num_src;
    LoadTogether<Where>(0, first, step, even);
    if (num_src > 1) LoadTogether<Where>(1, first, step, odd);
    TakeTogether(0, even, true, fold);
#pragma unroll 1
    for (uint32_t k = 1; k < num_src; k += 2) {
      if (k + 1 < num_src) LoadTogether<Where>(k + 1, first, step, even);
      TakeTogether(k, odd, false, fold);
      if (k + 1 == num_src) break;
      if (k + 2 < num_src) LoadTogether<Where>(k + 2, first, step, odd);
      TakeTogether(k + 1, even, false, fold);
    }
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const Raw result = kFull || Format::kIsFloat ? fold[u].Finish(move) : fold[u].Elements();
      const uint32_t piece = first + u * step;
      if (piece >= Where::Number(pieces)) continue;
#pragma unroll 1
      for (uint32_t d = 0; d < move.num_dst; ++d) Where::Store(Where::Address(pieces, d, move.place[d], piece), result);
    }
  }
  AXCCL_DEVICE void TakeTogether(uint32_t k, const Raw* raw, bool first, F* fold) const {
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      if constexpr (kFull) {
        fold[u].Take(move, raw[u], k, first);
      } else {
        fold[u].TakeUnscaled(raw[u], first);
      }
    }
  }
  template <class Where>
  AXCCL_DEVICE void LoadTogether(uint32_t k, uint32_t first, uint32_t step, Raw* raw) const {
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint32_t piece = first + u * step;
      raw[u] = Raw{};
      if (piece < Where::Number(pieces))
        raw[u] = Where::Load(Where::Address(pieces, move.num_dst + k, move.src()[k], piece));
    }
  }

  // Reduces one piece of any kind: the aligned ones come first, then the others.
  AXCCL_DEVICE void One(uint32_t index) const {
    uint32_t at = pieces.head + 16 * index;
    uint32_t part = 0;  // bytes of a piece that is not aligned
    if (index >= pieces.aligned) {
      part = pieces.Other(index - pieces.aligned, &at);
      if (part == 0) return;
    }
    const uint32_t where = pieces.box != nullptr ? index : at;
    F fold;
    Raw raw{};
#pragma unroll 1
    for (uint32_t k = 0; k <= move.num_src; ++k) {
      Raw next{};
      if (k < move.num_src) next = LoadOne(k, where, part);
      if (k != 0) fold.Take(move, raw, k - 1, k == 1);
      raw = next;
    }
    const Raw result = fold.Finish(move);
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      uint8_t* const to = pieces.Address(d, move.place[d], where);
      if (part == 0) {
        StoreRaw(to, result);
      } else {
        StorePart(to, result, part, pieces.word, move.flag);
      }
    }
  }
  AXCCL_DEVICE Raw LoadOne(uint32_t k, uint32_t where, uint32_t part) const {
    const uint8_t* const from = pieces.Address(move.num_dst + k, move.src()[k], where);
    return part == 0 ? LoadRaw(from) : LoadPart(from, part, pieces.word);
  }

  // If some operand is a slot of rows. Threads share the places of rows that they store, or else the pieces.
  AXCCL_DEVICE void Rows() const {
    const bool stores = StoresRows();
    const uint32_t places = StoredRows(pieces.bytes) * kRowPlaces, num = stores ? places : (pieces.bytes + 15) / 16;
#pragma unroll 1
    for (uint32_t first = 0; first < num; first += NumThreads()) {
      const uint32_t i = first + ThreadIndex(), place = stores ? i : i + i / kRowPieces;
      const Raw result = ReducedPlace(place);
#pragma unroll 1
      for (uint32_t d = 0; d < move.num_dst; ++d) {
        uint8_t* const to = move.place[d];
        if (IsRowed(to)) {
          StorePlace(to, place, places, result, move.flag);
        } else {
          StorePiece(to, place, result, pieces);
        }
      }
    }
  }
  AXCCL_DEVICE bool StoresRows() const {
    uint64_t tags = 0;
    for (uint32_t d = 0; d < move.num_dst; ++d) tags |= reinterpret_cast<uint64_t>(move.place[d]);
    return (tags & kRowsTag) != 0;
  }
  AXCCL_DEVICE Raw ReducedPlace(uint32_t place) const {
    uint32_t at;
    const uint32_t size = PieceAt(place, pieces.bytes, &at);
    if (size == 0) return Raw{};
    const bool ahead = kPossible && pieces.aligned != 0 && size == 16;
    F fold;
    Raw raw[kAhead] = {};
#pragma unroll 1
    for (uint32_t k = 0; k < move.num_src; ++k) {
      if (!ahead) {
        raw[0] = LoadPiece(move.src()[k], place, pieces);
      } else if (k % kAhead == 0) {
        LoadAhead(k, at, raw);
      }
      fold.Take(move, raw[0], k, k == 0);
#pragma unroll
      for (uint32_t u = 0; u + 1 < kAhead; ++u) raw[u] = raw[u + 1];
    }
    return fold.Finish(move);
  }
  // Of slots of rows and other sources from `k` on, whole pieces, in flight together.
  AXCCL_DEVICE void LoadAhead(uint32_t k, uint32_t where, Raw* raw) const {
    const uint32_t in_rows = InRows(where), last = move.num_src - 1;
#pragma unroll
    for (uint32_t u = 0; u < kAhead; ++u) {
      const uint8_t* const place = move.src()[k + u < last ? k + u : last];
      raw[u] = LoadRaw(IsRowed(place) ? RowPlace(place) + in_rows : place + where);
    }
  }
};

// Reduces all but what ReduceAlignedBox has reduced.
template <class Format, class Op>
AXCCL_DEVICE_CALL void ReduceAs(const Move& in_shared, Pieces pieces) {
  const Move& move = InShared(in_shared);
  const Reducer<Format, Op> reducer{move, pieces};
  const bool together = reducer.CanTogether();
#pragma unroll 1
  for (uint32_t i = (together ? pieces.aligned : 0) + ThreadIndex(); i < pieces.aligned + pieces.NumOthers();
       i += NumThreads())
    reducer.One(i);
  // Last, because registers hold little else meanwhile.
  if constexpr (Reducer<Format, Op>::kPossible) {
    if (together && pieces.box == nullptr) reducer.template AllTogether<AlignedRun>();
  }
}

// Reduces the aligned pieces of a box. A function of its own, because it needs many registers.
template <class Format, class Op>
AXCCL_DEVICE_CALL void ReduceAlignedBox(const Move& in_shared, Pieces pieces) {
  Reducer<Format, Op>{InShared(in_shared), pieces}.template AllTogether<AlignedBox>();
}

// Reduces runs of words of 4 bytes whose alignments differ. With words of 2 there are too few registers to have many
// loads in flight.
template <class Format, class Op>
AXCCL_DEVICE_CALL void ReduceWords(const Move& in_shared, Pieces pieces) {
  const Reducer<Format, Op> reducer{InShared(in_shared), pieces};
  if (ThreadIndex() == 0 && pieces.bytes % 16 != 0) reducer.One(pieces.bytes / 16);
  reducer.template AllTogether<RunOfWords>();
}

// Reduces what is in slots of rows, or to them.
template <class Format, class Op>
AXCCL_DEVICE_CALL void ReduceRows(const Move& in_shared, Pieces pieces) {
  Reducer<Format, Op>{InShared(in_shared), pieces}.Rows();
}

// Reduces what the block keeps. `kScaled`: as the move.
template <class Format, class Op, bool kScaled>
AXCCL_DEVICE_CALL void ReduceKept(const Move& in_shared, Pieces pieces) {
  const Move& move = InShared(in_shared);
  const Raw* const kept = &InShared(*pieces.kept);
  const uint32_t stride = (pieces.bytes + 15) / 16;
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < stride; i += NumThreads()) {
    Fold<Format, Op> fold;
#pragma unroll 1
    for (uint32_t k = 0; k < move.num_src; ++k) {
      if constexpr (kScaled) {
        fold.Take(move, kept[k * stride + i], k, k == 0);
      } else {
        fold.TakeUnscaled(kept[k * stride + i], k == 0);
      }
    }
    const uint32_t left = pieces.bytes - 16 * i;
    StorePart(move.place[0] + 16 * i, fold.Finish(move), left < 16 ? left : 16, pieces.word, 0);
  }
}

// Scales what the block keeps, in place.
template <class Format>
AXCCL_DEVICE_CALL void ScaleKept(const Move& in_shared, Pieces pieces) {
  const Move& move = InShared(in_shared);
  Raw* const kept = &InShared(*pieces.kept);
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < pieces.aligned; i += NumThreads()) {
    Fold<Format, Sum> fold;
    fold.Take(move, kept[i], 0, true);
    kept[i] = fold.Elements();
  }
}

// ---- dispatch ----

// Only sums are scaled.
template <class Format, class Op>
AXCCL_DEVICE void ReduceKeptOf(const Move& move, const Pieces& pieces) {
  if constexpr (std::is_same_v<Op, Sum>) {
    if (move.scaled)
      return pieces.aligned != 0 ? ScaleKept<Format>(move, pieces) : ReduceKept<Format, Op, true>(move, pieces);
  }
  ReduceKept<Format, Op, false>(move, pieces);
}

template <class Format, class Op>
AXCCL_DEVICE void ReduceOf(const Move& move, const Pieces& pieces) {
  if (pieces.kept != nullptr) return ReduceKeptOf<Format, Op>(move, pieces);
  if (pieces.rows) return ReduceRows<Format, Op>(move, pieces);
  ReduceAs<Format, Op>(move, pieces);
}

template <class Format>
AXCCL_DEVICE void ReduceSum(const Move& move, const Pieces& pieces) {
  if constexpr (Reducer<Format, Sum>::kFull) {
    if (pieces.box != nullptr) ReduceAlignedBox<Format, Sum>(move, pieces);
    if (pieces.InWords()) return ReduceWords<Format, Sum>(move, pieces);
  }
  ReduceOf<Format, Sum>(move, pieces);
}

template <class Format>
AXCCL_DEVICE void ReduceFloats(const Move& move, const Pieces& pieces) {
  switch (move.combine) {
    case Combine::kSum:
      return ReduceSum<Format>(move, pieces);
    case Combine::kProd:
      return ReduceOf<Format, Prod>(move, pieces);
    case Combine::kMax:
      return ReduceOf<Format, Max>(move, pieces);
    default:
      return ReduceOf<Format, Min>(move, pieces);
  }
}

template <class Format>
AXCCL_DEVICE void ReduceComplex(const Move& move, const Pieces& pieces) {
  if (move.combine == Combine::kSum) return ReduceSum<Format>(move, pieces);
  ReduceOf<Format, ComplexProd>(move, pieces);
}

// Sums and products are the same for signed and unsigned integers, and bitwise operations for all widths, so one mover
// serves several types.
template <class Signed, class Unsigned>
AXCCL_DEVICE void ReduceIntegers(const Move& move, const Pieces& pieces, bool is_signed) {
  using Bits = Integer<uint32_t>;
  switch (move.combine) {
    case Combine::kSum:
      return ReduceOf<Unsigned, Sum>(move, pieces);
    case Combine::kProd:
      return ReduceOf<Unsigned, Prod>(move, pieces);
    case Combine::kMax:
      return is_signed ? ReduceOf<Signed, Max>(move, pieces) : ReduceOf<Unsigned, Max>(move, pieces);
    case Combine::kMin:
      return is_signed ? ReduceOf<Signed, Min>(move, pieces) : ReduceOf<Unsigned, Min>(move, pieces);
    case Combine::kAnd:
      return ReduceOf<Bits, And>(move, pieces);
    case Combine::kOr:
      return ReduceOf<Bits, Or>(move, pieces);
    case Combine::kXor:
      return ReduceOf<Bits, Xor>(move, pieces);
    case Combine::kLogicalAnd:
      return ReduceOf<Unsigned, LogicalAnd>(move, pieces);
    default:
      return ReduceOf<Unsigned, LogicalOr>(move, pieces);
  }
}

// StableHLO's definition: the sum and the maximum are "or", the product and the minimum are "and".
AXCCL_DEVICE void ReduceBools(const Move& move, const Pieces& pieces) {
  using Bools = PackedInteger<uint8_t>;
  switch (move.combine) {
    case Combine::kSum:
    case Combine::kMax:
    case Combine::kOr:
    case Combine::kLogicalOr:
      return ReduceOf<Bools, LogicalOr>(move, pieces);
    case Combine::kXor:
      return ReduceOf<Bools, LogicalXor>(move, pieces);
    default:
      return ReduceOf<Bools, LogicalAnd>(move, pieces);
  }
}

AXCCL_DEVICE void ReduceType(const Move& m, const Pieces& pieces) {
  switch (m.type) {
    case DataType::kInt8:
      return ReduceIntegers<PackedInteger<int8_t>, PackedInteger<uint8_t>>(m, pieces, true);
    case DataType::kUint8:
      return ReduceIntegers<PackedInteger<int8_t>, PackedInteger<uint8_t>>(m, pieces, false);
    case DataType::kInt16:
      return ReduceIntegers<PackedInteger<int16_t>, PackedInteger<uint16_t>>(m, pieces, true);
    case DataType::kUint16:
      return ReduceIntegers<PackedInteger<int16_t>, PackedInteger<uint16_t>>(m, pieces, false);
    case DataType::kInt32:
      return ReduceIntegers<Integer<int32_t>, Integer<uint32_t>>(m, pieces, true);
    case DataType::kUint32:
      return ReduceIntegers<Integer<int32_t>, Integer<uint32_t>>(m, pieces, false);
    case DataType::kInt64:
      return ReduceIntegers<Integer<int64_t>, Integer<uint64_t>>(m, pieces, true);
    case DataType::kUint64:
      return ReduceIntegers<Integer<int64_t>, Integer<uint64_t>>(m, pieces, false);
    case DataType::kFloat16:
      return ReduceFloats<Float16>(m, pieces);
    case DataType::kFloat32:
      return ReduceFloats<Float32>(m, pieces);
    case DataType::kFloat64:
      return ReduceFloats<Float64>(m, pieces);
    case DataType::kBfloat16:
      return ReduceFloats<Bfloat16>(m, pieces);
    case DataType::kFloat8E4M3:
      return ReduceFloats<Float8E4M3>(m, pieces);
    case DataType::kFloat8E5M2:
      return ReduceFloats<Float8E5M2>(m, pieces);
    case DataType::kBool:
      return ReduceBools(m, pieces);
    case DataType::kComplex64:
      return ReduceComplex<Float32>(m, pieces);
    case DataType::kComplex128:
      return ReduceComplex<Float64>(m, pieces);
    default:
      return;  // opaque elements are only copied
  }
}

AXCCL_DEVICE_CALL void ReduceElements(const Move& move) {
  const Pieces pieces =
      Pieces::Of(move.place, move.num_operands(), static_cast<uint32_t>(move.count) * move.element, move.element);
  ReduceType(move, pieces);
}

AXCCL_DEVICE_CALL void ReduceKeptElements(const Move& move, void* kept, uint32_t bytes) {
  const auto to = reinterpret_cast<uint64_t>(move.place[0]);
  Pieces pieces{bytes, 0, 0, to % 4 == 0 ? 4u : to % 2 == 0 ? 2u : 1u};
  pieces.kept = static_cast<Raw*>(kept);
  ReduceType(move, pieces);
}

AXCCL_DEVICE_CALL void ScaleKeptElements(const Move& move, void* kept, uint32_t num) {
  Pieces pieces{16 * num, num, 0, 4};
  pieces.kept = static_cast<Raw*>(kept);
  ReduceType(move, pieces);
}

AXCCL_DEVICE_CALL void ReduceBox(const Move& move, const Box& box) { ReduceType(move, Pieces::Of(box)); }

}  // namespace axccl::kernels::cuda
