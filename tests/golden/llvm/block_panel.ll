define i32 @block_panel(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = alloca [512 x i8], align 64 ; packed
  br label %loop9
loop9:
  %i.packed_b.11 = phi i64 [ 0, %entry ], [ %v41, %done13 ]
  %v15 = mul i64 %i.packed_b.11, 32
  %v16 = getelementptr i8, ptr %v3, i64 %v15
  %v25 = getelementptr i8, ptr %v5, i64 %v15
  %v28 = mul i64 %i.packed_b.11, 256
  %v29 = getelementptr i8, ptr %v8, i64 %v28
  br label %loop12
loop12:
  %i.packed_i_i.14 = phi i64 [ 0, %loop9 ], [ %v39, %loop12 ]
  %v17 = mul i64 %i.packed_i_i.14, 8
  %v18 = getelementptr i8, ptr %v16, i64 %v17
  %v30 = mul i64 %i.packed_i_i.14, 32
  %v31 = getelementptr i8, ptr %v29, i64 %v30
  %v19 = load <8 x i8>, ptr %v18, align 1
  %v20 = lshr <8 x i8> %v19, splat (i8 0)
  %v21 = and <8 x i8> %v20, splat (i8 15)
  %v22 = and <8 x i8> %v21, splat (i8 15)
  %v23 = uitofp <8 x i8> %v22 to <8 x float>
  %v24 = fsub contract <8 x float> %v23, splat (float 0x4020000000000000)
  %v26 = load <8 x float>, ptr %v25, align 4
  %v27 = fmul contract <8 x float> %v24, %v26
  store <8 x float> %v27, ptr %v31, align 4
  %v32 = lshr <8 x i8> %v19, splat (i8 4)
  %v33 = and <8 x i8> %v32, splat (i8 15)
  %v34 = and <8 x i8> %v33, splat (i8 15)
  %v35 = uitofp <8 x i8> %v34 to <8 x float>
  %v36 = fsub contract <8 x float> %v35, splat (float 0x4020000000000000)
  %v37 = fmul contract <8 x float> %v36, %v26
  %v38 = getelementptr i8, ptr %v31, i64 128
  store <8 x float> %v37, ptr %v38, align 4
  %v39 = add nuw nsw i64 %i.packed_i_i.14, 1
  %v40 = icmp slt i64 %v39, 4
  br i1 %v40, label %loop12, label %done13
done13:
  %v41 = add nuw nsw i64 %i.packed_b.11, 1
  %v42 = icmp slt i64 %v41, 2
  br i1 %v42, label %loop9, label %done10
done10:
  br label %loop43
loop43:
  %i.row.45 = phi i64 [ 0, %done10 ], [ %v99, %done47 ]
  %v60 = mul i64 %i.row.45, 256
  %v61 = getelementptr i8, ptr %v1, i64 %v60
  %v94 = mul i64 %i.row.45, 128
  %v95 = getelementptr i8, ptr %v7, i64 %v94
  br label %loop46
loop46:
  %acc49 = phi <8 x float> [ splat (float 0x0000000000000000), %loop43 ], [ %v70, %done54 ]
  %acc50 = phi <8 x float> [ splat (float 0x0000000000000000), %loop43 ], [ %v75, %done54 ]
  %acc51 = phi <8 x float> [ splat (float 0x0000000000000000), %loop43 ], [ %v80, %done54 ]
  %acc52 = phi <8 x float> [ splat (float 0x0000000000000000), %loop43 ], [ %v85, %done54 ]
  %at62 = phi ptr [ %v61, %loop43 ], [ %v90, %done54 ]
  %at65 = phi ptr [ %v8, %loop43 ], [ %v91, %done54 ]
  %i.block_matmul_sum_b.48 = phi i64 [ 0, %loop43 ], [ %v92, %done54 ]
  br label %loop53
loop53:
  %acc56 = phi <8 x float> [ %acc49, %loop46 ], [ %v70, %loop53 ]
  %acc57 = phi <8 x float> [ %acc50, %loop46 ], [ %v75, %loop53 ]
  %acc58 = phi <8 x float> [ %acc51, %loop46 ], [ %v80, %loop53 ]
  %acc59 = phi <8 x float> [ %acc52, %loop46 ], [ %v85, %loop53 ]
  %at63 = phi ptr [ %at62, %loop46 ], [ %v86, %loop53 ]
  %at66 = phi ptr [ %at65, %loop46 ], [ %v87, %loop53 ]
  %i.block_matmul_sum_i.55 = phi i64 [ 0, %loop46 ], [ %v88, %loop53 ]
  %v64 = load float, ptr %at63, align 4
  %v67 = load <8 x float>, ptr %at66, align 4
  %v68 = insertelement <8 x float> poison, float %v64, i64 0
  %v69 = shufflevector <8 x float> %v68, <8 x float> poison, <8 x i32> zeroinitializer
  %v70 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v69, <8 x float> %v67, <8 x float> %acc56)
  %v71 = getelementptr i8, ptr %at63, i64 64
  %v72 = load float, ptr %v71, align 4
  %v73 = insertelement <8 x float> poison, float %v72, i64 0
  %v74 = shufflevector <8 x float> %v73, <8 x float> poison, <8 x i32> zeroinitializer
  %v75 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v67, <8 x float> %acc57)
  %v76 = getelementptr i8, ptr %at63, i64 128
  %v77 = load float, ptr %v76, align 4
  %v78 = insertelement <8 x float> poison, float %v77, i64 0
  %v79 = shufflevector <8 x float> %v78, <8 x float> poison, <8 x i32> zeroinitializer
  %v80 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v79, <8 x float> %v67, <8 x float> %acc58)
  %v81 = getelementptr i8, ptr %at63, i64 192
  %v82 = load float, ptr %v81, align 4
  %v83 = insertelement <8 x float> poison, float %v82, i64 0
  %v84 = shufflevector <8 x float> %v83, <8 x float> poison, <8 x i32> zeroinitializer
  %v85 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v84, <8 x float> %v67, <8 x float> %acc59)
  %v86 = getelementptr i8, ptr %at63, i64 4
  %v87 = getelementptr i8, ptr %at66, i64 32
  %v88 = add nuw nsw i64 %i.block_matmul_sum_i.55, 1
  %v89 = icmp slt i64 %v88, 8
  br i1 %v89, label %loop53, label %done54
done54:
  %v90 = getelementptr i8, ptr %at62, i64 32
  %v91 = getelementptr i8, ptr %at65, i64 256
  %v92 = add nuw nsw i64 %i.block_matmul_sum_b.48, 1
  %v93 = icmp slt i64 %v92, 2
  br i1 %v93, label %loop46, label %done47
done47:
  store <8 x float> %v70, ptr %v95, align 4
  %v96 = getelementptr i8, ptr %v95, i64 32
  store <8 x float> %v75, ptr %v96, align 4
  %v97 = getelementptr i8, ptr %v95, i64 64
  store <8 x float> %v80, ptr %v97, align 4
  %v98 = getelementptr i8, ptr %v95, i64 96
  store <8 x float> %v85, ptr %v98, align 4
  %v99 = add nuw nsw i64 %i.row.45, 1
  %v100 = icmp slt i64 %v99, 4
  br i1 %v100, label %loop43, label %done44
done44:
  br label %loop101
loop101:
  %acc104 = phi <8 x float> [ splat (float 0x0000000000000000), %done44 ], [ %v118, %done106 ]
  %at109 = phi ptr [ %v1, %done44 ], [ %v123, %done106 ]
  %at113 = phi ptr [ %v8, %done44 ], [ %v124, %done106 ]
  %i.block_matmul_sum_b_tail.103 = phi i64 [ 0, %done44 ], [ %v125, %done106 ]
  br label %loop105
loop105:
  %acc108 = phi <8 x float> [ %acc104, %loop101 ], [ %v118, %loop105 ]
  %at110 = phi ptr [ %at109, %loop101 ], [ %v119, %loop105 ]
  %at114 = phi ptr [ %at113, %loop101 ], [ %v120, %loop105 ]
  %i.block_matmul_sum_i_tail.107 = phi i64 [ 0, %loop101 ], [ %v121, %loop105 ]
  %v111 = getelementptr i8, ptr %at110, i64 1024
  %v112 = load float, ptr %v111, align 4
  %v115 = load <8 x float>, ptr %at114, align 4
  %v116 = insertelement <8 x float> poison, float %v112, i64 0
  %v117 = shufflevector <8 x float> %v116, <8 x float> poison, <8 x i32> zeroinitializer
  %v118 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v117, <8 x float> %v115, <8 x float> %acc108)
  %v119 = getelementptr i8, ptr %at110, i64 4
  %v120 = getelementptr i8, ptr %at114, i64 32
  %v121 = add nuw nsw i64 %i.block_matmul_sum_i_tail.107, 1
  %v122 = icmp slt i64 %v121, 8
  br i1 %v122, label %loop105, label %done106
done106:
  %v123 = getelementptr i8, ptr %at109, i64 32
  %v124 = getelementptr i8, ptr %at113, i64 256
  %v125 = add nuw nsw i64 %i.block_matmul_sum_b_tail.103, 1
  %v126 = icmp slt i64 %v125, 2
  br i1 %v126, label %loop101, label %done102
done102:
  %v127 = getelementptr i8, ptr %v7, i64 512
  store <8 x float> %v118, ptr %v127, align 4
  ret i32 0
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
