define i32 @bottleneck(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
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
  %v10 = getelementptr i8, ptr %args, i64 40
  %v11 = load ptr, ptr %v10, align 8
  %v12 = alloca [512 x i8], align 64 ; padded
  br label %loop13
loop13:
  %i.padded_p2.15 = phi i64 [ 0, %entry ], [ %v18, %loop13 ]
  %v16 = mul i64 %i.padded_p2.15, 128
  %v17 = getelementptr i8, ptr %v12, i64 %v16
  store <8 x float> splat (float 0x0000000000000000), ptr %v17, align 4
  %v18 = add nuw nsw i64 %i.padded_p2.15, 1
  %v19 = icmp slt i64 %v18, 4
  br i1 %v19, label %loop13, label %done14
done14:
  br label %loop20
loop20:
  %i.inside.22 = phi i64 [ 0, %done14 ], [ %v26, %loop20 ]
  %v23 = mul i64 %i.inside.22, 32
  %v24 = getelementptr i8, ptr %v12, i64 %v23
  %v25 = getelementptr i8, ptr %v24, i64 32
  store <8 x float> splat (float 0x0000000000000000), ptr %v25, align 4
  %v26 = add nuw nsw i64 %i.inside.22, 1
  %v27 = icmp slt i64 %v26, 2
  br i1 %v27, label %loop20, label %done21
done21:
  br label %loop28
loop28:
  %i.line.30 = phi i64 [ 0, %done21 ], [ %v93, %done32 ]
  %v38 = mul i64 %i.line.30, 128
  %v39 = getelementptr i8, ptr %v1, i64 %v38
  %v88 = getelementptr i8, ptr %v12, i64 %v38
  br label %loop31
loop31:
  %i.point.33 = phi i64 [ 0, %loop28 ], [ %v91, %done35 ]
  %v40 = mul i64 %i.point.33, 32
  %v41 = getelementptr i8, ptr %v39, i64 %v40
  %v89 = getelementptr i8, ptr %v88, i64 %v40
  br label %loop34
loop34:
  %acc37 = phi <8 x float> [ splat (float 0x0000000000000000), %loop31 ], [ %v49, %loop34 ]
  %at42 = phi ptr [ %v41, %loop31 ], [ %v50, %loop34 ]
  %at45 = phi ptr [ %v3, %loop31 ], [ %v51, %loop34 ]
  %i.conv_ic.36 = phi i64 [ 0, %loop31 ], [ %v52, %loop34 ]
  %v43 = getelementptr i8, ptr %at42, i64 160
  %v44 = load float, ptr %v43, align 4
  %v46 = load <8 x float>, ptr %at45, align 4
  %v47 = insertelement <8 x float> poison, float %v44, i64 0
  %v48 = shufflevector <8 x float> %v47, <8 x float> poison, <8 x i32> zeroinitializer
  %v49 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v48, <8 x float> %v46, <8 x float> %acc37)
  %v50 = getelementptr i8, ptr %at42, i64 4
  %v51 = getelementptr i8, ptr %at45, i64 32
  %v52 = add nuw nsw i64 %i.conv_ic.36, 1
  %v53 = icmp slt i64 %v52, 8
  br i1 %v53, label %loop34, label %done35
done35:
  %v54 = load <8 x float>, ptr %v5, align 4
  %v55 = fadd contract <8 x float> %v49, %v54
  %v56 = fneg <8 x float> %v55
  %v57 = fcmp olt <8 x float> splat (float 0x4056400000000000), %v56
  %v58 = select <8 x i1> %v57, <8 x float> splat (float 0x4056400000000000), <8 x float> %v56
  %v59 = fcmp olt <8 x float> %v58, splat (float 0xC05A000000000000)
  %v60 = select <8 x i1> %v59, <8 x float> splat (float 0xC05A000000000000), <8 x float> %v58
  %v61 = fmul <8 x float> %v60, splat (float 0x3FF7154760000000)
  %v62 = fadd <8 x float> %v61, splat (float 0x4168000000000000)
  %v63 = fsub <8 x float> %v62, splat (float 0x4168000000000000)
  %v64 = bitcast <8 x float> %v62 to <8 x i32>
  %v65 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v63, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %v60)
  %v66 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v63, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %v65)
  %v67 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F2A12A420000000), <8 x float> %v66, <8 x float> splat (float 0x3F56D49200000000))
  %v68 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v67, <8 x float> %v66, <8 x float> splat (float 0x3F81110E00000000))
  %v69 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v68, <8 x float> %v66, <8 x float> splat (float 0x3FA5554E40000000))
  %v70 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v69, <8 x float> %v66, <8 x float> splat (float 0x3FC5555560000000))
  %v71 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v70, <8 x float> %v66, <8 x float> splat (float 0x3FE0000000000000))
  %v72 = fmul <8 x float> %v66, %v66
  %v73 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v72, <8 x float> %v71, <8 x float> %v66)
  %v74 = fadd <8 x float> %v73, splat (float 0x3FF0000000000000)
  %v75 = sub <8 x i32> %v64, splat (i32 1262485504)
  %v76 = ashr <8 x i32> %v75, splat (i32 1)
  %v77 = sub <8 x i32> %v75, %v76
  %v78 = add <8 x i32> %v76, splat (i32 127)
  %v79 = shl <8 x i32> %v78, splat (i32 23)
  %v80 = bitcast <8 x i32> %v79 to <8 x float>
  %v81 = fmul <8 x float> %v74, %v80
  %v82 = add <8 x i32> %v77, splat (i32 127)
  %v83 = shl <8 x i32> %v82, splat (i32 23)
  %v84 = bitcast <8 x i32> %v83 to <8 x float>
  %v85 = fmul <8 x float> %v81, %v84
  %v86 = fadd contract <8 x float> splat (float 0x3FF0000000000000), %v85
  %v87 = fdiv <8 x float> splat (float 0x3FF0000000000000), %v86
  %v90 = getelementptr i8, ptr %v89, i64 160
  store <8 x float> %v87, ptr %v90, align 4
  %v91 = add nuw nsw i64 %i.point.33, 1
  %v92 = icmp slt i64 %v91, 2
  br i1 %v92, label %loop31, label %done32
done32:
  %v93 = add nuw nsw i64 %i.line.30, 1
  %v94 = icmp slt i64 %v93, 2
  br i1 %v94, label %loop28, label %done29
done29:
  br label %loop95
loop95:
  %i.bottom_below_inside.97 = phi i64 [ 0, %done29 ], [ %v101, %loop95 ]
  %v98 = mul i64 %i.bottom_below_inside.97, 32
  %v99 = getelementptr i8, ptr %v12, i64 %v98
  %v100 = getelementptr i8, ptr %v99, i64 416
  store <8 x float> splat (float 0x0000000000000000), ptr %v100, align 4
  %v101 = add nuw nsw i64 %i.bottom_below_inside.97, 1
  %v102 = icmp slt i64 %v101, 2
  br i1 %v102, label %loop95, label %done96
done96:
  br label %loop103
loop103:
  %i.right_inside_padded_p2.105 = phi i64 [ 0, %done96 ], [ %v109, %loop103 ]
  %v106 = mul i64 %i.right_inside_padded_p2.105, 128
  %v107 = getelementptr i8, ptr %v12, i64 %v106
  %v108 = getelementptr i8, ptr %v107, i64 96
  store <8 x float> splat (float 0x0000000000000000), ptr %v108, align 4
  %v109 = add nuw nsw i64 %i.right_inside_padded_p2.105, 1
  %v110 = icmp slt i64 %v109, 4
  br i1 %v110, label %loop103, label %done104
done104:
  br label %loop111
loop111:
  %i.row.113 = phi i64 [ 0, %done104 ], [ %v171, %done115 ]
  %v117 = mul i64 %i.row.113, 128
  %v118 = getelementptr i8, ptr %v12, i64 %v117
  %v166 = mul i64 %i.row.113, 64
  %v167 = getelementptr i8, ptr %v11, i64 %v166
  br label %loop114
loop114:
  %i.column.116 = phi i64 [ 0, %loop111 ], [ %v169, %loop114 ]
  %v119 = mul i64 %i.column.116, 32
  %v120 = getelementptr i8, ptr %v118, i64 %v119
  %v168 = getelementptr i8, ptr %v167, i64 %v119
  %v121 = load <8 x float>, ptr %v120, align 4
  %v122 = load <8 x float>, ptr %v7, align 4
  %v123 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v121, <8 x float> %v122, <8 x float> splat (float 0x0000000000000000))
  %v124 = getelementptr i8, ptr %v120, i64 32
  %v125 = load <8 x float>, ptr %v124, align 4
  %v126 = getelementptr i8, ptr %v7, i64 32
  %v127 = load <8 x float>, ptr %v126, align 4
  %v128 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v125, <8 x float> %v127, <8 x float> %v123)
  %v129 = getelementptr i8, ptr %v120, i64 64
  %v130 = load <8 x float>, ptr %v129, align 4
  %v131 = getelementptr i8, ptr %v7, i64 64
  %v132 = load <8 x float>, ptr %v131, align 4
  %v133 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v130, <8 x float> %v132, <8 x float> %v128)
  %v134 = getelementptr i8, ptr %v120, i64 128
  %v135 = load <8 x float>, ptr %v134, align 4
  %v136 = getelementptr i8, ptr %v7, i64 96
  %v137 = load <8 x float>, ptr %v136, align 4
  %v138 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v135, <8 x float> %v137, <8 x float> %v133)
  %v139 = getelementptr i8, ptr %v120, i64 160
  %v140 = load <8 x float>, ptr %v139, align 4
  %v141 = getelementptr i8, ptr %v7, i64 128
  %v142 = load <8 x float>, ptr %v141, align 4
  %v143 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v140, <8 x float> %v142, <8 x float> %v138)
  %v144 = getelementptr i8, ptr %v120, i64 192
  %v145 = load <8 x float>, ptr %v144, align 4
  %v146 = getelementptr i8, ptr %v7, i64 160
  %v147 = load <8 x float>, ptr %v146, align 4
  %v148 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v145, <8 x float> %v147, <8 x float> %v143)
  %v149 = getelementptr i8, ptr %v120, i64 256
  %v150 = load <8 x float>, ptr %v149, align 4
  fence syncscope("singlethread") acq_rel
  %v151 = getelementptr i8, ptr %v7, i64 192
  %v152 = load <8 x float>, ptr %v151, align 4
  %v153 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v150, <8 x float> %v152, <8 x float> %v148)
  fence syncscope("singlethread") acq_rel
  %v154 = getelementptr i8, ptr %v120, i64 288
  %v155 = load <8 x float>, ptr %v154, align 4
  fence syncscope("singlethread") acq_rel
  %v156 = getelementptr i8, ptr %v7, i64 224
  %v157 = load <8 x float>, ptr %v156, align 4
  %v158 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v155, <8 x float> %v157, <8 x float> %v153)
  fence syncscope("singlethread") acq_rel
  %v159 = getelementptr i8, ptr %v120, i64 320
  %v160 = load <8 x float>, ptr %v159, align 4
  fence syncscope("singlethread") acq_rel
  %v161 = getelementptr i8, ptr %v7, i64 256
  %v162 = load <8 x float>, ptr %v161, align 4
  %v163 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v160, <8 x float> %v162, <8 x float> %v158)
  fence syncscope("singlethread") acq_rel
  %v164 = load <8 x float>, ptr %v9, align 4
  %v165 = fadd contract <8 x float> %v163, %v164
  store <8 x float> %v165, ptr %v168, align 4
  %v169 = add nuw nsw i64 %i.column.116, 1
  %v170 = icmp slt i64 %v169, 2
  br i1 %v170, label %loop114, label %done115
done115:
  %v171 = add nuw nsw i64 %i.row.113, 1
  %v172 = icmp slt i64 %v171, 2
  br i1 %v172, label %loop111, label %done112
done112:
  ret i32 0
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
