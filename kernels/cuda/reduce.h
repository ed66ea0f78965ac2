// The code of the movers (movers.h). Included once in a program.
//
// A mover is one (format, combination), with everything dispatched outside its loop; factors and divisors are a branch
// that all threads take alike. All sources of a piece are read and combined before its destinations are written.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/combine.h"
#include "kernels/cuda/formats.h"
#include "kernels/cuda/movers.h"
#include "kernels/cuda/pieces.h"

namespace axccl::kernels::cuda {

// Of operands that are not aligned alike: word by word, which neighbouring threads do side by side.
template <class Word>
AXCCL_DEVICE void CopyWords(const Move& move, uint64_t bytes) {
  constexpr uint32_t kTogether = 8;  // loads in flight of a thread
  const uint8_t* const from = move.src()[0];
  const uint64_t step = NumThreads(), words = bytes / sizeof(Word);
#pragma unroll 1
  for (uint64_t first = ThreadIndex(); first < words; first += kTogether * step) {
    Word word[kTogether];
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint64_t i = first + u * step;
      if (i < words) word[u] = LoadWord<Word>(from + i * sizeof(Word));
    }
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] == from) continue;
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u) {
        const uint64_t i = first + u * step;
        if (i < words) StoreWord<Word>(move.place[d] + i * sizeof(Word), word[u]);
      }
    }
  }
}

AXCCL_DEVICE void CopyAligned(const Move& move, const Pieces& pieces) {
  constexpr uint32_t kTogether = 4;  // loads in flight of a thread
  const uint8_t* const from = move.src()[0];
  const uint64_t step = NumThreads();
#pragma unroll 1
  for (uint64_t first = ThreadIndex(); first < pieces.aligned; first += kTogether * step) {
    Raw raw[kTogether];
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint64_t piece = first + u * step;
      if (piece < pieces.aligned) raw[u] = LoadRaw(from + pieces.head + 16 * piece);
    }
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] == from) continue;
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u) {
        const uint64_t piece = first + u * step;
        if (piece < pieces.aligned) StoreRaw(move.place[d] + pieces.head + 16 * piece, raw[u]);
      }
    }
  }
}

AXCCL_DEVICE_CALL void CopyElements(const Move& move) {
  const uint64_t bytes = move.count * move.element;
  const Pieces pieces = Pieces::Of(move.place, move.num_operands(), bytes, 1);
  const uint8_t* const from = move.src()[0];
  if (pieces.aligned == 0 && bytes % pieces.word == 0) {
    if (pieces.word == 4) return CopyWords<uint32_t>(move, bytes);
    if (pieces.word == 2) return CopyWords<uint16_t>(move, bytes);
    return CopyWords<uint8_t>(move, bytes);
  }
  CopyAligned(move, pieces);
#pragma unroll 1
  for (uint64_t i = ThreadIndex(); i < pieces.NumOthers(); i += NumThreads()) {
    uint64_t at;
    const uint32_t size = pieces.Other(i, &at);
    const Raw raw = LoadPart(from + at, size, pieces.word);
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] != from) StorePart(move.place[d] + at, raw, size, pieces.word);
    }
  }
}

template <class Word>
AXCCL_DEVICE Word LoadAs(const uint8_t* p) {
  if constexpr (sizeof(Word) == 16) {
    return LoadRaw(p);
  } else {
    return LoadWord<Word>(p);
  }
}
template <class Word>
AXCCL_DEVICE void StoreAs(uint8_t* p, const Word& word) {
  if constexpr (sizeof(Word) == 16) {
    StoreRaw(p, word);
  } else {
    StoreWord<Word>(p, word);
  }
}

// Pieces of a box, which are words.
template <class Word>
AXCCL_DEVICE void CopyBoxWords(const Move& move, const Box& box) {
  constexpr uint32_t kTogether = 4;  // loads in flight of a thread
  uint8_t* const from = move.src()[0];
  const uint32_t step = NumThreads(), words = static_cast<uint32_t>(box.pieces);
#pragma unroll 1
  for (uint32_t first = ThreadIndex(); first < words; first += kTogether * step) {
    Word word[kTogether];
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint32_t i = first + u * step;
      if (i < words) word[u] = LoadAs<Word>(box.Address(move.num_dst, from, i));
    }
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] == from) continue;
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u) {
        const uint32_t i = first + u * step;
        if (i < words) StoreAs<Word>(box.Address(d, move.place[d], i), word[u]);
      }
    }
  }
}

AXCCL_DEVICE_CALL void CopyBox(const Move& move, const Box& box) {
  switch (box.word) {
    case 16:
      return CopyBoxWords<Raw>(move, box);
    case 8:
      return CopyBoxWords<uint64_t>(move, box);
    case 4:
      return CopyBoxWords<uint32_t>(move, box);
    case 2:
      return CopyBoxWords<uint16_t>(move, box);
    default:
      return CopyBoxWords<uint8_t>(move, box);
  }
}

// The lanes of one piece while it is combined.
template <class Format, class Op>
struct Fold {
  typename Format::Lane lane[Format::kLanes];

  // Source k as it is taken in.
  static AXCCL_DEVICE Fold Of(const Move& move, const Raw& raw, uint32_t k) {
    Fold fold;
#pragma unroll
    for (int i = 0; i < Format::kLanes; ++i) fold.lane[i] = Format::Up(raw, i);
    if (move.scaled) fold.Scale(move, move.pre()[k]);
    return fold;
  }
  AXCCL_DEVICE void Scale(const Move& move, const Factor& factor) {
#pragma unroll
    for (int i = 0; i < Format::kLanes; ++i) lane[i] = Format::Scaled(lane[i], factor);
    if constexpr (Format::kIsFloat && Format::kBytes < 4) {
      if (!move.round_factored) return;
#pragma unroll
      for (int i = 0; i < Format::kLanes; ++i) lane[i] = Format::Rounded(lane[i]);
    }
  }
  AXCCL_DEVICE void Add(const Fold& next) {
    if constexpr (std::is_same_v<Op, ComplexProd>) {
      if constexpr (Format::kLanes >= 2) {
#pragma unroll
        for (int i = 0; i < Format::kLanes; i += 2) Op::OfPair(&lane[i], &lane[i + 1], next.lane[i], next.lane[i + 1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Format::kLanes; ++i) lane[i] = Format::template Combined<Op>(lane[i], next.lane[i]);
    }
  }
  AXCCL_DEVICE Raw Finish(const Move& move, bool is_signed) {
    if constexpr (!Format::kIsFloat) {
      if (move.divisor > 1) {
#pragma unroll
        for (int i = 0; i < Format::kLanes; ++i) lane[i] = Format::Divided(lane[i], move.divisor, is_signed);
      }
    } else if (move.scales_result) {
#pragma unroll
      for (int i = 0; i < Format::kLanes; ++i) lane[i] = Format::Scaled(lane[i], move.post);
    }
    Raw raw;
#pragma unroll
    for (int i = 0; i < Format::kLanes; ++i) Format::Down(lane[i], i, &raw);
    return raw;
  }
};

template <class Format, class Op>
struct Reducer {
  using F = Fold<Format, Op>;
  // Aligned pieces that a thread takes side by side. More of them hide more of the way to another device's memory, and
  // take more code and registers: worth it for sums of floats.
  static constexpr uint32_t kTogether = std::is_same_v<Op, Sum> && Format::kIsFloat && Format::kBytes > 1 ? 2 : 1;

  const Move& move;
  const Pieces& pieces;
  const bool is_signed;

  // All aligned pieces.
  template <bool kBox>
  AXCCL_DEVICE void AllTogether() const {
    const uint64_t step = NumThreads();
#pragma unroll 1
    for (uint64_t first = ThreadIndex(); first < pieces.aligned; first += kTogether * step)
      Together<kBox>(first, step);
  }
  // The next source is on its way while one is combined.
  template <bool kBox>
  AXCCL_DEVICE void Together(uint64_t first, uint64_t step) const {
    Raw next[kTogether];
    F fold[kTogether];
    LoadTogether<kBox>(0, first, step, next);
#pragma unroll 1
    for (uint32_t k = 0; k < move.num_src; ++k) {
      Raw raw[kTogether];
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u) raw[u] = next[u];
      if (k + 1 < move.num_src) LoadTogether<kBox>(k + 1, first, step, next);
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u) {
        const F source = F::Of(move, raw[u], k);
        if (k == 0) {
          fold[u] = source;
        } else {
          fold[u].Add(source);
        }
      }
    }
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const Raw result = fold[u].Finish(move, is_signed);
      const uint64_t piece = first + u * step;
      if (piece >= pieces.aligned) continue;
#pragma unroll 1
      for (uint32_t d = 0; d < move.num_dst; ++d) StoreRaw(Aligned<kBox>(d, move.place[d], piece), result);
    }
  }
  template <bool kBox>
  AXCCL_DEVICE void LoadTogether(uint32_t k, uint64_t first, uint64_t step, Raw* raw) const {
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint64_t piece = first + u * step;
      raw[u] = Raw{};
      if (piece < pieces.aligned) raw[u] = LoadRaw(Aligned<kBox>(move.num_dst + k, move.src()[k], piece));
    }
  }
  template <bool kBox>
  AXCCL_DEVICE uint8_t* Aligned(uint32_t operand, uint8_t* place, uint64_t piece) const {
    if constexpr (kBox) return pieces.box->Address(operand, place, piece);
    return place + pieces.head + 16 * piece;
  }

  // One piece of any kind: the aligned ones, then the others.
  AXCCL_DEVICE void One(uint64_t index) const {
    uint64_t at = pieces.head + 16 * index;
    uint32_t part = 0;  // bytes of one that is not aligned
    if (index >= pieces.aligned) {
      part = pieces.Other(index - pieces.aligned, &at);
      if (part == 0) return;
    }
    F fold;
    Raw next = LoadOne(0, index, at, part);
#pragma unroll 1
    for (uint32_t k = 0; k < move.num_src; ++k) {
      const Raw raw = next;
      if (k + 1 < move.num_src) next = LoadOne(k + 1, index, at, part);
      const F source = F::Of(move, raw, k);
      if (k == 0) {
        fold = source;
      } else {
        fold.Add(source);
      }
    }
    const Raw result = fold.Finish(move, is_signed);
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      uint8_t* const to = pieces.Address(d, move.place[d], index, at);
      if (part == 0) {
        StoreRaw(to, result);
      } else {
        StorePart(to, result, part, pieces.word);
      }
    }
  }
  AXCCL_DEVICE Raw LoadOne(uint32_t k, uint64_t index, uint64_t at, uint32_t part) const {
    const uint8_t* const from = pieces.Address(move.num_dst + k, move.src()[k], index, at);
    return part == 0 ? LoadRaw(from) : LoadPart(from, part, pieces.word);
  }
};

template <class Format, class Op>
AXCCL_DEVICE_CALL void ReduceAs(const Move& move, Pieces pieces, bool is_signed) {
  using R = Reducer<Format, Op>;
  const R reducer{move, pieces, is_signed};
  const uint64_t step = NumThreads();
  uint64_t done = 0;
  if constexpr (R::kTogether > 1) {
    done = pieces.aligned;
    if (pieces.box != nullptr) {
      reducer.template AllTogether<true>();
    } else {
      reducer.template AllTogether<false>();
    }
  }
#pragma unroll 1
  for (uint64_t i = done + ThreadIndex(); i < pieces.aligned + pieces.NumOthers(); i += step) reducer.One(i);
}

// ---- dispatch ----

template <class Format>
AXCCL_DEVICE void ReduceFloats(const Move& move, const Pieces& pieces) {
  switch (move.combine) {
    case Combine::kSum:
      return ReduceAs<Format, Sum>(move, pieces, false);
    case Combine::kProd:
      return ReduceAs<Format, Prod>(move, pieces, false);
    case Combine::kMax:
      return ReduceAs<Format, Max>(move, pieces, false);
    default:
      return ReduceAs<Format, Min>(move, pieces, false);
  }
}

template <class Format>
AXCCL_DEVICE void ReduceComplex(const Move& move, const Pieces& pieces) {
  if (move.combine == Combine::kSum) return ReduceAs<Format, Sum>(move, pieces, false);
  ReduceAs<Format, ComplexProd>(move, pieces, false);
}

// Sums and products do not care for the sign, bits have no width: those are one mover for several types.
template <class Signed, class Unsigned>
AXCCL_DEVICE void ReduceIntegers(const Move& move, const Pieces& pieces, bool is_signed) {
  using Bits = Integer<uint32_t>;
  switch (move.combine) {
    case Combine::kSum:
      return ReduceAs<Unsigned, Sum>(move, pieces, is_signed);
    case Combine::kProd:
      return ReduceAs<Unsigned, Prod>(move, pieces, is_signed);
    case Combine::kMax:
      return is_signed ? ReduceAs<Signed, Max>(move, pieces, true) : ReduceAs<Unsigned, Max>(move, pieces, false);
    case Combine::kMin:
      return is_signed ? ReduceAs<Signed, Min>(move, pieces, true) : ReduceAs<Unsigned, Min>(move, pieces, false);
    case Combine::kAnd:
      return ReduceAs<Bits, And>(move, pieces, false);
    case Combine::kOr:
      return ReduceAs<Bits, Or>(move, pieces, false);
    case Combine::kXor:
      return ReduceAs<Bits, Xor>(move, pieces, false);
    case Combine::kLogicalAnd:
      return ReduceAs<Unsigned, LogicalAnd>(move, pieces, false);
    default:
      return ReduceAs<Unsigned, LogicalOr>(move, pieces, false);
  }
}

// As StableHLO has it: the sum and the larger of two is "or", the product and the smaller is "and".
AXCCL_DEVICE void ReduceBools(const Move& move, const Pieces& pieces) {
  using Bools = PackedInteger<uint8_t>;
  switch (move.combine) {
    case Combine::kSum:
    case Combine::kMax:
    case Combine::kOr:
    case Combine::kLogicalOr:
      return ReduceAs<Bools, LogicalOr>(move, pieces, false);
    case Combine::kXor:
      return ReduceAs<Bools, LogicalXor>(move, pieces, false);
    default:
      return ReduceAs<Bools, LogicalAnd>(move, pieces, false);
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
  const Pieces pieces = Pieces::Of(move.place, move.num_operands(), move.count * move.element, move.element);
  ReduceType(move, pieces);
}

AXCCL_DEVICE_CALL void ReduceBox(const Move& move, const Box& box) { ReduceType(move, Pieces::Of(box)); }

}  // namespace axccl::kernels::cuda
