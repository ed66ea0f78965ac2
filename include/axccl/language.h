/* What C89, later C and C++ spell differently: inline functions and casts, for the other public headers. Macros only.
 *
 * A cast of C is a warning of C++ compilers (-Wold-style-cast), also where it comes out of a macro of a header. */
#ifndef AXCCL_LANGUAGE_H_
#define AXCCL_LANGUAGE_H_

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define AXCCL_INLINE static inline
#elif defined(__GNUC__)
#define AXCCL_INLINE static __inline__ /* C89 has no inline, and its compilers have this */
#else
#define AXCCL_INLINE static
#endif

#ifdef __cplusplus
#define AXCCL_VALUE_CAST(type, value) (static_cast<type>(value))
#define AXCCL_POINTER_CAST(type, pointer) (reinterpret_cast<type>(pointer))
#else
#define AXCCL_VALUE_CAST(type, value) ((type)(value))
#define AXCCL_POINTER_CAST(type, pointer) ((type)(void*)(pointer))
#endif

#endif /* AXCCL_LANGUAGE_H_ */
