// The op board: which operations a rank has under way, and which were the last ones.
//
// Ranks write records of their operations into their blocks, and how far each has come (exec/layout.h). This reads
// them, of the own rank and of peers whose memory is mapped here. It takes no lock that an operation holds, and changes
// nothing but the count of users of created channels, so it works on ranks that hang, are stopped, or have died. Any
// thread may call it while the communicator is alive. Processes of another machine are asked over lifelines
// (net/notices.h), where their service threads read the board in the same way.
#pragma once

#include "src/base/status.h"
#include "src/comm/board.h"
#include "src/comm/communicator.h"

namespace axccl::comm {

// The operations of that rank. kTimeout, kRemoteError: its machine has not answered, or no process of it can.
Result<Board> ReadOpBoard(const Communicator& comm, int rank);
// The same of a rank of this machine.
Board ReadLocalBoard(const Communicator& comm, int rank);

}  // namespace axccl::comm
