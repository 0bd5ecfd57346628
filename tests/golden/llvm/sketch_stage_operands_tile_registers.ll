define i32 @sketch_stage_operands_tile_registers(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %args, i64 32
  %v9 = load ptr, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v9, i64 0
  br label %loop11
loop11:
  %i.einsum_sum_w_staged_w0.13 = phi i64 [ 0, %entry ], [ %v30, %loop11 ]
  %v14 = mul i64 %i.einsum_sum_w_staged_w0.13, 24
  %v15 = getelementptr i8, ptr %v3, i64 %v14
  %v17 = mul i64 %i.einsum_sum_w_staged_w0.13, 4
  %v18 = getelementptr i8, ptr %v10, i64 %v17
  %v16 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v15, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v19 = getelementptr i8, ptr %v18, i64 68
  %v20 = getelementptr i8, ptr %v18, i64 136
  %v21 = getelementptr i8, ptr %v18, i64 204
  %v22 = getelementptr i8, ptr %v18, i64 272
  %v23 = getelementptr i8, ptr %v18, i64 340
  %v24 = extractelement <8 x float> %v16, i64 0
  store float %v24, ptr %v18, align 4
  %v25 = extractelement <8 x float> %v16, i64 1
  store float %v25, ptr %v19, align 4
  %v26 = extractelement <8 x float> %v16, i64 2
  store float %v26, ptr %v20, align 4
  %v27 = extractelement <8 x float> %v16, i64 3
  store float %v27, ptr %v21, align 4
  %v28 = extractelement <8 x float> %v16, i64 4
  store float %v28, ptr %v22, align 4
  %v29 = extractelement <8 x float> %v16, i64 5
  store float %v29, ptr %v23, align 4
  %v30 = add nuw nsw i64 %i.einsum_sum_w_staged_w0.13, 1
  %v31 = icmp slt i64 %v30, 17
  br i1 %v31, label %loop11, label %done12
done12:
  br label %loop32
loop32:
  %i.einsum_i_i_o.34 = phi i64 [ 0, %done12 ], [ %v103, %done36 ]
  %v50 = mul i64 %i.einsum_i_i_o.34, 96
  %v51 = getelementptr i8, ptr %v1, i64 %v50
  %v90 = mul i64 %i.einsum_i_i_o.34, 272
  %v91 = getelementptr i8, ptr %v5, i64 %v90
  br label %loop35
loop35:
  %acc38 = phi <8 x float> [ splat (float 0x0000000000000000), %loop32 ], [ %v58, %loop35 ]
  %acc39 = phi <8 x float> [ splat (float 0x0000000000000000), %loop32 ], [ %v61, %loop35 ]
  %acc40 = phi float [ 0x0000000000000000, %loop32 ], [ %v64, %loop35 ]
  %acc41 = phi <8 x float> [ splat (float 0x0000000000000000), %loop32 ], [ %v69, %loop35 ]
  %acc42 = phi <8 x float> [ splat (float 0x0000000000000000), %loop32 ], [ %v70, %loop35 ]
  %acc43 = phi float [ 0x0000000000000000, %loop32 ], [ %v71, %loop35 ]
  %acc44 = phi <8 x float> [ splat (float 0x0000000000000000), %loop32 ], [ %v76, %loop35 ]
  %acc45 = phi <8 x float> [ splat (float 0x0000000000000000), %loop32 ], [ %v77, %loop35 ]
  %acc46 = phi float [ 0x0000000000000000, %loop32 ], [ %v78, %loop35 ]
  %acc47 = phi <8 x float> [ splat (float 0x0000000000000000), %loop32 ], [ %v83, %loop35 ]
  %acc48 = phi <8 x float> [ splat (float 0x0000000000000000), %loop32 ], [ %v84, %loop35 ]
  %acc49 = phi float [ 0x0000000000000000, %loop32 ], [ %v85, %loop35 ]
  %at52 = phi ptr [ %v51, %loop32 ], [ %v86, %loop35 ]
  %at54 = phi ptr [ %v10, %loop32 ], [ %v87, %loop35 ]
  %i.einsum_sum_r_k.37 = phi i64 [ 0, %loop32 ], [ %v88, %loop35 ]
  %v53 = load float, ptr %at52, align 4
  %v55 = load <8 x float>, ptr %at54, align 4
  %v56 = insertelement <8 x float> poison, float %v53, i64 0
  %v57 = shufflevector <8 x float> %v56, <8 x float> poison, <8 x i32> zeroinitializer
  %v58 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v57, <8 x float> %v55, <8 x float> %acc38)
  %v59 = getelementptr i8, ptr %at54, i64 32
  %v60 = load <8 x float>, ptr %v59, align 4
  %v61 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v57, <8 x float> %v60, <8 x float> %acc39)
  %v62 = getelementptr i8, ptr %at54, i64 64
  %v63 = load float, ptr %v62, align 4
  %v64 = call float @llvm.fmuladd.f32(float %v53, float %v63, float %acc40)
  %v65 = getelementptr i8, ptr %at52, i64 24
  %v66 = load float, ptr %v65, align 4
  %v67 = insertelement <8 x float> poison, float %v66, i64 0
  %v68 = shufflevector <8 x float> %v67, <8 x float> poison, <8 x i32> zeroinitializer
  %v69 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v68, <8 x float> %v55, <8 x float> %acc41)
  %v70 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v68, <8 x float> %v60, <8 x float> %acc42)
  %v71 = call float @llvm.fmuladd.f32(float %v66, float %v63, float %acc43)
  %v72 = getelementptr i8, ptr %at52, i64 48
  %v73 = load float, ptr %v72, align 4
  %v74 = insertelement <8 x float> poison, float %v73, i64 0
  %v75 = shufflevector <8 x float> %v74, <8 x float> poison, <8 x i32> zeroinitializer
  %v76 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v75, <8 x float> %v55, <8 x float> %acc44)
  %v77 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v75, <8 x float> %v60, <8 x float> %acc45)
  %v78 = call float @llvm.fmuladd.f32(float %v73, float %v63, float %acc46)
  %v79 = getelementptr i8, ptr %at52, i64 72
  %v80 = load float, ptr %v79, align 4
  %v81 = insertelement <8 x float> poison, float %v80, i64 0
  %v82 = shufflevector <8 x float> %v81, <8 x float> poison, <8 x i32> zeroinitializer
  %v83 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v82, <8 x float> %v55, <8 x float> %acc47)
  %v84 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v82, <8 x float> %v60, <8 x float> %acc48)
  %v85 = call float @llvm.fmuladd.f32(float %v80, float %v63, float %acc49)
  %v86 = getelementptr i8, ptr %at52, i64 4
  %v87 = getelementptr i8, ptr %at54, i64 68
  %v88 = add nuw nsw i64 %i.einsum_sum_r_k.37, 1
  %v89 = icmp slt i64 %v88, 6
  br i1 %v89, label %loop35, label %done36
done36:
  store <8 x float> %v58, ptr %v91, align 4
  %v92 = getelementptr i8, ptr %v91, i64 32
  store <8 x float> %v61, ptr %v92, align 4
  %v93 = getelementptr i8, ptr %v91, i64 64
  store float %v64, ptr %v93, align 4
  %v94 = getelementptr i8, ptr %v91, i64 68
  store <8 x float> %v69, ptr %v94, align 4
  %v95 = getelementptr i8, ptr %v91, i64 100
  store <8 x float> %v70, ptr %v95, align 4
  %v96 = getelementptr i8, ptr %v91, i64 132
  store float %v71, ptr %v96, align 4
  %v97 = getelementptr i8, ptr %v91, i64 136
  store <8 x float> %v76, ptr %v97, align 4
  %v98 = getelementptr i8, ptr %v91, i64 168
  store <8 x float> %v77, ptr %v98, align 4
  %v99 = getelementptr i8, ptr %v91, i64 200
  store float %v78, ptr %v99, align 4
  %v100 = getelementptr i8, ptr %v91, i64 204
  store <8 x float> %v83, ptr %v100, align 4
  %v101 = getelementptr i8, ptr %v91, i64 236
  store <8 x float> %v84, ptr %v101, align 4
  %v102 = getelementptr i8, ptr %v91, i64 268
  store float %v85, ptr %v102, align 4
  %v103 = add nuw nsw i64 %i.einsum_i_i_o.34, 1
  %v104 = icmp slt i64 %v103, 2
  br i1 %v104, label %loop32, label %done33
done33:
  br label %loop105
loop105:
  %acc108 = phi <8 x float> [ splat (float 0x0000000000000000), %done33 ], [ %v121, %loop105 ]
  %acc109 = phi <8 x float> [ splat (float 0x0000000000000000), %done33 ], [ %v124, %loop105 ]
  %acc110 = phi float [ 0x0000000000000000, %done33 ], [ %v127, %loop105 ]
  %acc111 = phi <8 x float> [ splat (float 0x0000000000000000), %done33 ], [ %v132, %loop105 ]
  %acc112 = phi <8 x float> [ splat (float 0x0000000000000000), %done33 ], [ %v133, %loop105 ]
  %acc113 = phi float [ 0x0000000000000000, %done33 ], [ %v134, %loop105 ]
  %at114 = phi ptr [ %v1, %done33 ], [ %v135, %loop105 ]
  %at117 = phi ptr [ %v10, %done33 ], [ %v136, %loop105 ]
  %i.einsum_sum_r_k_tail.107 = phi i64 [ 0, %done33 ], [ %v137, %loop105 ]
  %v115 = getelementptr i8, ptr %at114, i64 192
  %v116 = load float, ptr %v115, align 4
  %v118 = load <8 x float>, ptr %at117, align 4
  %v119 = insertelement <8 x float> poison, float %v116, i64 0
  %v120 = shufflevector <8 x float> %v119, <8 x float> poison, <8 x i32> zeroinitializer
  %v121 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v120, <8 x float> %v118, <8 x float> %acc108)
  %v122 = getelementptr i8, ptr %at117, i64 32
  %v123 = load <8 x float>, ptr %v122, align 4
  %v124 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v120, <8 x float> %v123, <8 x float> %acc109)
  %v125 = getelementptr i8, ptr %at117, i64 64
  %v126 = load float, ptr %v125, align 4
  %v127 = call float @llvm.fmuladd.f32(float %v116, float %v126, float %acc110)
  %v128 = getelementptr i8, ptr %at114, i64 216
  %v129 = load float, ptr %v128, align 4
  %v130 = insertelement <8 x float> poison, float %v129, i64 0
  %v131 = shufflevector <8 x float> %v130, <8 x float> poison, <8 x i32> zeroinitializer
  %v132 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v131, <8 x float> %v118, <8 x float> %acc111)
  %v133 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v131, <8 x float> %v123, <8 x float> %acc112)
  %v134 = call float @llvm.fmuladd.f32(float %v129, float %v126, float %acc113)
  %v135 = getelementptr i8, ptr %at114, i64 4
  %v136 = getelementptr i8, ptr %at117, i64 68
  %v137 = add nuw nsw i64 %i.einsum_sum_r_k_tail.107, 1
  %v138 = icmp slt i64 %v137, 6
  br i1 %v138, label %loop105, label %done106
done106:
  %v139 = getelementptr i8, ptr %v5, i64 544
  store <8 x float> %v121, ptr %v139, align 4
  %v140 = getelementptr i8, ptr %v5, i64 576
  store <8 x float> %v124, ptr %v140, align 4
  %v141 = getelementptr i8, ptr %v5, i64 608
  store float %v127, ptr %v141, align 4
  %v142 = getelementptr i8, ptr %v5, i64 612
  store <8 x float> %v132, ptr %v142, align 4
  %v143 = getelementptr i8, ptr %v5, i64 644
  store <8 x float> %v133, ptr %v143, align 4
  %v144 = getelementptr i8, ptr %v5, i64 676
  store float %v134, ptr %v144, align 4
  br label %loop145
loop145:
  %i.neg_i0.147 = phi i64 [ 0, %done106 ], [ %v161, %loop145 ]
  %v148 = mul i64 %i.neg_i0.147, 68
  %v149 = getelementptr i8, ptr %v5, i64 %v148
  %v152 = getelementptr i8, ptr %v7, i64 %v148
  %v150 = load <8 x float>, ptr %v149, align 4
  %v151 = fneg <8 x float> %v150
  store <8 x float> %v151, ptr %v152, align 4
  %v153 = getelementptr i8, ptr %v149, i64 32
  %v154 = load <8 x float>, ptr %v153, align 4
  %v155 = fneg <8 x float> %v154
  %v156 = getelementptr i8, ptr %v152, i64 32
  store <8 x float> %v155, ptr %v156, align 4
  %v157 = getelementptr i8, ptr %v149, i64 64
  %v158 = load float, ptr %v157, align 4
  %v159 = fneg float %v158
  %v160 = getelementptr i8, ptr %v152, i64 64
  store float %v159, ptr %v160, align 4
  %v161 = add nuw nsw i64 %i.neg_i0.147, 1
  %v162 = icmp slt i64 %v161, 10
  br i1 %v162, label %loop145, label %done146
done146:
  ret i32 0
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare float @llvm.fmuladd.f32(float, float, float)
