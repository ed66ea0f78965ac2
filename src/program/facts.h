// What operations and functions say of themselves, for everything that goes through programs: which ranks meet, and
// which types values have. Pure functions.
#pragma once

#include <vector>

#include "src/program/id_table.h"
#include "src/program/program.h"

namespace axccl::program {

// Collectives and messages.
bool IsCommunication(OpKind kind);
bool IsMessage(OpKind kind);  // send, recv

// The sets of ranks that wait for each other in a collective: its groups, or all ranks of collective_permute's pairs.
std::vector<Ints> MembersOf(const Operation& collective);
// The one that the rank is in; empty if it is in none.
Ints GroupOf(const Operation& collective, int64_t rank);

// Of all values of the function, those in regions included. Refers to it.
IdTable<const TensorType*> TypesOf(const Function& function);

}  // namespace axccl::program
