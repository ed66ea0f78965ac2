// A simulation as a picture, in SVG.
//
// From above: what the colours mean; a row for each rank, with its compute stream and its communication stream below,
// where ranks of a part that do the same at the same time share a row; the axis of time; and for each part a curve of
// live bytes, all to one scale. Live bytes follow the order of the program: those of an operation are drawn from its
// start, or from the start of an operation before it in the program that starts later.
//
// A block is an operation. Operations narrower than half a pixel share a block, in the colour of the kind that takes
// most of its time, as opaque as the share of its time that is busy. So the size of the picture follows from the number
// of rows, whatever the number of operations. Of more than 64 rows or parts, the first 64 are drawn, and a line says
// how many are not.
#pragma once

#include <string>

#include "src/program/simulate.h"

namespace axccl::tools {

// `simulation`: of the program, with its events. Pure.
std::string DrawingOf(const program::Program& program, const program::Simulation& simulation);

}  // namespace axccl::tools
