// What a thread holds of a piece while sources are combined: the values of its lanes. For one thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/combine.h"
#include "kernels/cuda/formats.h"
#include "kernels/cuda/movers.h"

namespace axccl::kernels::cuda {

// The lanes of one piece while it is combined.
template <class Format, class Op>
struct Fold {
  typename Format::Lane lane[Format::kLanes];

  // Takes source k, which is the first or is combined with those before. Decisions that are the same for all lanes are
  // made outside the loop, so that the lanes are processed one after the other and few registers hold them.
  AXCCL_DEVICE void Take(const Move& move, const Raw& raw, uint32_t k, bool first) {
    if (move.scaled) {
      Take<true>(raw, first, move.pre()[k], move.round_factored);
    } else {
      TakeUnscaled(raw, first);
    }
  }
  AXCCL_DEVICE void TakeUnscaled(const Raw& raw, bool first) { Take<false>(raw, first, Factor{}, false); }
  template <bool kScaled>
  AXCCL_DEVICE void Take(const Raw& raw, bool first, const Factor& factor, bool round) {
    using Lane = typename Format::Lane;
    constexpr int kStep = std::is_same_v<Op, ComplexProd> && Format::kLanes >= 2 ? 2 : 1;
#pragma unroll
    for (int i = 0; i < Format::kLanes; i += kStep) {
      Lane next[kStep];
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        next[j] = Format::Up(raw, i + j);
        if constexpr (kScaled) next[j] = Scaled(next[j], factor, round);
      }
      if (first) {
#pragma unroll
        for (int j = 0; j < kStep; ++j) lane[i + j] = next[j];
      } else if constexpr (kStep == 2) {
        Op::OfPair(&lane[i], &lane[i + 1], next[0], next[1]);
      } else if constexpr (!std::is_same_v<Op, ComplexProd>) {
        lane[i] = Format::template Combined<Op>(lane[i], next[0]);
      }
    }
  }
  static AXCCL_DEVICE typename Format::Lane Scaled(typename Format::Lane value, const Factor& factor, bool round) {
    const auto scaled = Format::Scaled(value, factor);
    if constexpr (Format::kIsFloat && Format::kBytes < 4) {
      if (round) return Format::Rounded(scaled);
    }
    return scaled;
  }
  AXCCL_DEVICE Raw Finish(const Move& move) {
    if constexpr (Format::kIsFloat) {
      if (move.scales_result) {
#pragma unroll
        for (int i = 0; i < Format::kLanes; ++i) lane[i] = Format::Scaled(lane[i], move.post);
      }
    }
    const Raw raw = Elements();
    if constexpr (!Format::kIsFloat) {
      if (move.divisor > 1) return Quotients(raw, move.divisor, Format::kBytes, IsSigned(move.type));
    }
    return raw;
  }
  AXCCL_DEVICE Raw Elements() const {
    Raw raw;
#pragma unroll
    for (int i = 0; i < Format::kLanes; ++i) Format::Down(lane[i], i, &raw);
    return raw;
  }
};

}  // namespace axccl::kernels::cuda
