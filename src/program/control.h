// What the control flow of a program depends on: the values without which nobody knows how often a loop is executed, or
// which branch. An executor that only communicates computes these and nothing else.
#pragma once

#include <unordered_set>

#include "src/program/program.h"

namespace axccl::program {

// The ids of these values in the function and its regions. Ids are those of a part.
std::unordered_set<Id> ControlValues(const Function& function);

}  // namespace axccl::program
