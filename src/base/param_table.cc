// What can be set from outside, and what it does. README.md points here; `axccl-info` prints it.
#include "src/base/param.h"

namespace axccl::param {
namespace {

Info Int(const char* name, const char* fallback, int64_t least, int64_t most, const char* meaning) {
  return {.name = name, .type = "int", .fallback = fallback, .meaning = meaning, .least = least, .most = most};
}
Info Bytes(const char* name, const char* fallback, int64_t least, int64_t most, const char* meaning) {
  return {.name = name, .type = "bytes", .fallback = fallback, .meaning = meaning, .least = least, .most = most};
}
Info Seconds(const char* name, const char* fallback, int64_t most, const char* meaning) {
  return {.name = name, .type = "seconds", .fallback = fallback, .meaning = meaning, .most = most};
}
Info Text(const char* name, const char* fallback, const char* meaning) {
  return {.name = name, .type = "string", .fallback = fallback, .meaning = meaning};
}
Info Word(const char* name, const char* fallback, const char* words, const char* meaning) {
  return {.name = name, .type = "string", .fallback = fallback, .meaning = meaning, .words = words};
}
Info Secret(const char* name, const char* meaning) {
  return {.name = name, .type = "string", .fallback = "", .meaning = meaning, .secret = true};
}

constexpr int64_t kKilo = 1024;
constexpr int64_t kMega = kKilo * kKilo;
constexpr int64_t kTera = kMega * kMega;
constexpr int64_t kYear = 366 * 24 * 3600;

}  // namespace

const std::vector<Info>& Table() {
  // Never destroyed: threads of the library may still read it while the process exits.
  static const auto* const table = new std::vector<Info>{
      Word("NCCL_DEBUG", "NONE", "NONE|VERSION|WARN|INFO|TRACE",
           "what is logged: nothing, or everything up to this level"),
      Text("NCCL_DEBUG_FILE", "stdout",
           "log file; %h becomes the host name, %p the process id; stdout and stderr are meant"),
      Text("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV",
           "parts of the library that log at INFO and TRACE; ^ first excludes"),
      Text("NCCL_CONF_FILE", "",
           "file with NAME=value lines, read where the environment is silent; default ~/.nccl.conf"),
      Text("NCCL_ALGO", "",
           "algorithms allowed: a list, or func:list;func:list; ^ inverts a list; empty: the cost model's choice"),
      Text("NCCL_PROTO", "",
           "protocols GPU ranks may use: LL, LL128 (where the hardware allows it), Simple (always there); a list as "
           "NCCL_ALGO's; ranks use what all of them allow"),
      Int("NCCL_COMM_BLOCKING", "1", 0, 1, "0: communicators are non-blocking whatever their config says"),
      Text("NCCL_COMM_ID", "", "host:port at which ranks meet instead of exchanging a unique id"),
      Text("NCCL_SOCKET_IFNAME", "",
           "network interfaces ranks may meet over: prefixes, = first for exact names, ^ to exclude; empty: those that "
           "lead "
           "out of the machine, else lo"),
      Word("NCCL_SOCKET_FAMILY", "", "AF_INET|AF_INET6", "address family ranks may meet over; empty: any"),
      Word("NCCL_NET", "", "IB|Socket",
           "what goes between machines: InfiniBand and RoCE, or TCP; empty: what is best to each peer"),
      Int("NCCL_IB_DISABLE", "0", 0, 1, "1: no InfiniBand and no RoCE"),
      Text("NCCL_IB_HCA", "",
           "ports of InfiniBand and RoCE adapters to use, as \"mlx5_0:1,mlx5_2\": prefixes, = first for exact names, ^ "
           "to "
           "exclude; empty: all that are active"),
      Int("NCCL_MIN_CTAS", "1", 1, 64, "lanes an operation uses at least"),
      Int("NCCL_MAX_CTAS", "64", 1, 64, "upper bound; below NCCL_MIN_CTAS it is an error"),
      Text("NCCL_TOPO_FILE", "",
           "file that says what this machine is made of, in AxCCL's form (docs/topology.md); empty: it is found out"),
      Text("NCCL_TOPO_DUMP_FILE", "",
           "file that what the machine is made of is written to when a communicator is made"),
      Int("NCCL_TOPO_DUMP_FILE_RANK", "0", 0, kMega, "the rank that writes NCCL_TOPO_DUMP_FILE"),
      Int("AXCCL_PLACE", "1", 0, 1,
          "0: on machines with several NUMA nodes or NICs, too, threads, memory and NICs are left to the system"),
      Int("NCCL_IGNORE_CPU_AFFINITY", "0", 0, 1,
          "1: ranks are placed as if nothing had bound their process to some of the machine's processors"),
      Text("NCCL_HOSTID", "",
           "ranks of one machine that have different ones do not share memory, as if on several machines"),
      Int("NCCL_CHECK_POINTERS", "0", 0, 1, "1: check pointers (no effect: they are always checked)"),
      Int("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 0, 1, "1: order communicators (no effect: ranks need no order)"),
      Int("NCCL_P2P_DISABLE", "0", 0, 1,
          "1: GPU ranks meet in pinned memory of the host (host ranks have but one link)"),
      Int("NCCL_SHM_DISABLE", "0", 0, 1, "1: no shared memory (no effect: it is the only link)"),
      Word("AXCCL_DEVICE", "auto", "auto|host|cuda", "where ranks live; auto: on GPUs where there are any"),
      Bytes("AXCCL_HEAP_BYTES", "0", 0, kTera,
            "address space for ncclMemAlloc and scratch; 0: four times the physical memory, 256G to 1T"),
      Int("AXCCL_GPU_CHANNELS", "16", 0, 1024,
          "channels of its own that a GPU rank may use at a time; each takes up to 1 MiB of its device"),
      Bytes("AXCCL_SCRATCH_BYTES", "2M", 64 * kKilo, kTera, "scratch memory a rank of a communicator may use"),
      Bytes("AXCCL_MAP_BYTES", "512K", 0, kTera,
            "GPU ranks of several processes go from buffer to buffer where a call moves so much; rank 0's setting "
            "counts"),
      Word("AXCCL_ORDER", "any", "any|group",
           "group: all reductions fold in group order, as with axcclGroupOrder; rank 0's setting counts"),
      Word("AXCCL_CMA", "auto", "auto|0", "0: never copy between processes by system call"),
      Text("AXCCL_ISA", "", "instruction set of the data movers, environment only; empty: the best this processor has"),
      Text("AXCCL_CACHE_DIR", "",
           "where measurements, and the secret of this user's ranks, are kept; default ~/.cache/axccl"),
      Word("AXCCL_NET_MEASURE", "once", "once|always|never",
           "what is known of the network between machines: measured once a day and kept, at every start, or fixed "
           "figures; "
           "rank 0's setting counts"),
      Secret("AXCCL_SECRET",
             "what ranks that meet at NCCL_COMM_ID prove to know, 16 bytes of random text or more; without it only "
             "this user's "
             "ranks on this machine can"),
      Text("AXCCL_SECRET_FILE", "",
           "file with that text instead, which its owner alone may read (chmod 600): command lines show what they set"),
      Int("AXCCL_TRUST_NETWORK", "0", 0, 1,
          "1: only who may write this process's memory reaches the network between machines; else standard error says "
          "that "
          "UCX's TCP ports accept anybody, unless NCCL_SOCKET_IFNAME names the network"),
      Int("AXCCL_TREE_RANKS", "65", 1, kMega,
          "so many ranks meet in a tree, fewer at one process, when a communicator is made; set it alike on all ranks"),
      Seconds("AXCCL_INIT_TIMEOUT", "600", kYear,
              "how long ranks wait for each other when a communicator is made, split, shrunk or grown"),
      Seconds("AXCCL_TIMEOUT", "600", kYear,
              "how long an operation of this rank may wait for peers before it fails; 0: for ever"),
      Seconds("AXCCL_WAIT_NOTICE", "30", kYear,
              "how long an operation of this rank waits for a peer until a line on stderr says so; 0: no such line"),
  };
  return *table;
}

}  // namespace axccl::param
