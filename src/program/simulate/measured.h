// What was measured on a machine, for operations and calls whose time no few figures tell: the optional lines at the
// end of a fabric file (docs/program-format.md, "Fabrics"). Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/simulate/fabric_lines.h"

namespace axccl::program {

struct MeasuredPoint {
  double bytes, seconds;
};
using MeasuredCurve = std::vector<MeasuredPoint>;  // ascending bytes, not empty

// Between points and beyond the last two by a straight line; below the first as there.
double SecondsAt(const MeasuredCurve& curve, double bytes);

struct Measured {
  // dot and dot_general: for each matrix product, each operation, and each byte of the left and right operand and of
  // the result, which a product goes over more often.
  struct Product {
    double seconds, per_flop, per_left_byte, per_right_byte, per_result_byte;
  };

  bool one_stream = false;  // a rank does not compute while it communicates
  std::map<DataType, Product> products;
  std::map<OpKind, MeasuredCurve> operations;             // by bytes read and written
  std::map<std::pair<OpKind, int>, MeasuredCurve> calls;  // of so many ranks, by the bytes of operands or results
};

// The lines from `line` on to the end of the file.
Status ParseMeasured(std::string_view line, FabricLines* lines, Measured* measured);
std::string Print(const Measured& measured);

}  // namespace axccl::program
