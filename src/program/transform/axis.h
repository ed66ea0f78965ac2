// Writes a part for the ranks of a new axis, from how its values are spread over them (spread.h): operations on pieces,
// and the communication that brings values from one layout into another where it is first needed.
#pragma once

#include <vector>

#include "src/base/status.h"
#include "src/program/transform.h"
#include "src/program/transform/spread.h"

namespace axccl::program {

struct Axis {
  int64_t ranks = 1;              // along the axis; rank r of the program before is r + i * its ranks on the i-th place
  std::vector<Layout> arguments;  // how each argument is kept
  Spread spread;                  // where arguments that are kept split may count as kSame
  bool reduces_at_once = false;   // whether terms that become slices do so as soon as they are there
};

Transformed Write(const Transformed& before, const Axis& axis);

}  // namespace axccl::program
