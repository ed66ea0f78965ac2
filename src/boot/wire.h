// The bytes of the rendezvous: hellos, proofs, frames.
//
//   rank -> hub   Hello
//   hub  -> rank  Hello, Proof                    (or Hello with kUnknownId, and the connection ends)
//   rank -> hub   Proof, frame kJoin
//   hub  -> rank  frame kAdmitted; before it, the hub may cut the connection in favour of younger ones, and the rank
//                 starts again
//   then frames both ways
//
// In a tree (see tree.h), a child greets its parent in the same way, as role kChild, with the id of the parent's node
// and a secret derived from those of all ids.
//
// A Proof is BLAKE2b keyed with the id's secret over both hellos (each with a fresh nonce) and the prover's role. It is
// mutual, bound to rank, nranks and version, and useless when replayed. The same construction gives the key of the
// connection. A frame is {bytes, type, sequence, MAC} and a payload; its MAC covers direction, header and payload. The
// layouts of Hello and Proof and of the kError frame never change, so two versions can always report their versions to
// each other.
//
// Little-endian. Pure functions and plain data, not tied to a socket; a FrameCipher belongs to one side of one
// connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/base/status.h"
#include "src/boot/unique_id.h"

namespace axccl::boot {

// The version of everything that ranks send each other: here, when a communicator is set up (src/comm), and in messages
// (transports/remote). Ranks with different versions do not connect. Increased whenever any of it changes.
inline constexpr uint32_t kProtocolVersion = 33;
inline constexpr int kMaxRanks = 1 << 16;
inline constexpr size_t kMaxContribution = 4096;
inline constexpr size_t kMaxText = 2048;

// kParent never greets: it is the receiver of a child's frames.
enum class Role : uint32_t { kRank = 1, kHub = 2, kUnknownId = 3, kChild = 4, kParent = 5 };

struct Hello {
  static constexpr uint64_t kMagic = 0x6f6c65484c434378ull;
  uint64_t magic = kMagic;
  uint32_t version = kProtocolVersion;
  uint32_t features = 0;  // bits that both sides must know to use; unknown ones are ignored
  Role role = Role::kRank;
  int32_t rank = -1;
  int32_t nranks = 0;
  uint32_t reserved = 0;
  IdBytes id{};
  std::array<uint8_t, 32> nonce{};
};
static_assert(sizeof(Hello) == 80);

using Proof = std::array<uint8_t, 32>;
using Key = std::array<uint8_t, 32>;

void FillNonce(Hello* hello);
Proof Prove(const Secret& secret, Role prover, const Hello& rank, const Hello& hub);
bool SameProof(const Proof& a, const Proof& b);  // constant time
Key ConnectionKey(const Secret& secret, const Hello& rank, const Hello& hub);

enum class FrameType : uint16_t {
  kJoin = 1,        // rank -> hub, child -> parent: JoinBody
  kStart = 2,       // hub -> rank: all ranks are there; empty, or for a tree a StartBody. parent -> child: empty
  kContribute = 3,  // rank -> hub: 1..kMaxContribution bytes. child -> parent: as many for every rank below it
  kGathered = 4,    // hub -> rank, parent -> child: as many for every rank
  kError = 5,       // both: u32 code, text; the rendezvous has failed, or this rank gives up
  kLeave = 6,       // rank -> hub, both ways in a tree: done; empty
  kFailed = 7,      // rank -> hub of a tree: as kError, but not about this rank
  kExpired = 8,     // both ways in a tree: u32 number of the exchange, text; the deadline of a rank has passed
  kAdmitted = 9,    // hub -> rank, parent -> child: the connection is admitted; empty
};

// The longest payload that `receiver` accepts in a rendezvous of `nranks`. Returns false for a type that it never gets.
bool PayloadLimit(Role receiver, FrameType type, int nranks, size_t* limit);

struct FrameHeader {
  uint32_t bytes = 0;
  FrameType type{};
  uint16_t reserved = 0;
  uint64_t sequence = 0;
  std::array<uint8_t, 16> mac{};
};
static_assert(sizeof(FrameHeader) == 32);

// The address at which a rank's children can connect. No address: the rank has no children.
struct NodeAddress {
  IdBytes node{};
  std::array<Address, 2> address{};
  uint32_t num_addresses = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(NodeAddress) == 72);

struct JoinBody {
  uint64_t patience_ns = 0;  // until the rank's deadline
  uint32_t pid = 0;
  uint32_t roots = 0;  // number of ids that the ranks have; 0: they meet at one hub, not in a tree
  std::array<char, 64> host{};
  uint32_t root = 0;  // index of the id that this hub serves
  uint32_t reserved = 0;
  NodeAddress listens;
};
static_assert(sizeof(JoinBody) == 160);

// The parent of the rank in the tree; no address: it has none.
struct StartBody {
  NodeAddress parent;
  uint32_t pid = 0;
  uint32_t reserved = 0;
  std::array<char, 64> host{};
};
static_assert(sizeof(StartBody) == 144);

// Seals outgoing and opens incoming frames of one connection, as `self`.
class FrameCipher {
 public:
  FrameCipher(const Key& key, Role self) : key_(key), self_(self) {}

  FrameHeader Seal(FrameType type, std::span<const std::byte> payload);
  // Returns false if the frame is forged, replayed, reordered or damaged. The connection must then be closed.
  bool Open(const FrameHeader& header, std::span<const std::byte> payload);

 private:
  std::array<uint8_t, 16> Mac(Role sender, const FrameHeader& header, std::span<const std::byte> payload) const;

  Key key_;
  Role self_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

// The payload of kError. The text is cut at kMaxText. DecodeError makes a peer's text printable ASCII, and never
// returns ok.
std::string EncodeError(const Status& status);
Status DecodeError(std::span<const std::byte> payload);
// An error that a rank caused is an error of all ranks; an error that happened to a rank is a remote error to the
// others.
Code CodeForOthers(Code code);

}  // namespace axccl::boot
