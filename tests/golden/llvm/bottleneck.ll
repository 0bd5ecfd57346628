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
  %i.line.30 = phi i64 [ 0, %done21 ], [ %v89, %done32 ]
  %v38 = mul i64 %i.line.30, 128
  %v39 = getelementptr i8, ptr %v1, i64 %v38
  %v84 = getelementptr i8, ptr %v12, i64 %v38
  br label %loop31
loop31:
  %i.point.33 = phi i64 [ 0, %loop28 ], [ %v87, %done35 ]
  %v40 = mul i64 %i.point.33, 32
  %v41 = getelementptr i8, ptr %v39, i64 %v40
  %v85 = getelementptr i8, ptr %v84, i64 %v40
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
  %v56 = call <8 x float> @llvm.fabs.v8f32(<8 x float> %v55)
  %v57 = fneg <8 x float> %v56
  %v58 = fcmp olt <8 x float> %v57, splat (float 0xC05A000000000000)
  %v59 = select <8 x i1> %v58, <8 x float> splat (float 0xC05A000000000000), <8 x float> %v57
  %v60 = fmul <8 x float> %v59, splat (float 0x3FF7154760000000)
  %v61 = fadd <8 x float> %v60, splat (float 0x4168000000000000)
  %v62 = fsub <8 x float> %v61, splat (float 0x4168000000000000)
  %v63 = bitcast <8 x float> %v61 to <8 x i32>
  %v64 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v62, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %v59)
  %v65 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v62, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %v64)
  %v66 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F2A12A420000000), <8 x float> %v65, <8 x float> splat (float 0x3F56D49200000000))
  %v67 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v66, <8 x float> %v65, <8 x float> splat (float 0x3F81110E00000000))
  %v68 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v67, <8 x float> %v65, <8 x float> splat (float 0x3FA5554E40000000))
  %v69 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v68, <8 x float> %v65, <8 x float> splat (float 0x3FC5555560000000))
  %v70 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v69, <8 x float> %v65, <8 x float> splat (float 0x3FE0000000000000))
  %v71 = fmul <8 x float> %v65, %v65
  %v72 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v71, <8 x float> %v70, <8 x float> %v65)
  %v73 = fcmp olt <8 x float> %v55, splat (float 0x0000000000000000)
  %v74 = fadd <8 x float> %v72, splat (float 0x3FF0000000000000)
  %v75 = sub <8 x i32> %v63, splat (i32 1262485440)
  %v76 = add <8 x i32> %v75, splat (i32 127)
  %v77 = shl <8 x i32> %v76, splat (i32 23)
  %v78 = bitcast <8 x i32> %v77 to <8 x float>
  %v79 = fmul <8 x float> %v74, %v78
  %v80 = select <8 x i1> %v73, <8 x float> %v79, <8 x float> splat (float 0x43F0000000000000)
  %v81 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v79, <8 x float> splat (float 0x3BF0000000000000), <8 x float> splat (float 0x3FF0000000000000))
  %v82 = fdiv <8 x float> %v80, %v81
  %v83 = fmul <8 x float> %v82, splat (float 0x3BF0000000000000)
  %v86 = getelementptr i8, ptr %v85, i64 160
  store <8 x float> %v83, ptr %v86, align 4
  %v87 = add nuw nsw i64 %i.point.33, 1
  %v88 = icmp slt i64 %v87, 2
  br i1 %v88, label %loop31, label %done32
done32:
  %v89 = add nuw nsw i64 %i.line.30, 1
  %v90 = icmp slt i64 %v89, 2
  br i1 %v90, label %loop28, label %done29
done29:
  br label %loop91
loop91:
  %i.bottom_below_inside.93 = phi i64 [ 0, %done29 ], [ %v97, %loop91 ]
  %v94 = mul i64 %i.bottom_below_inside.93, 32
  %v95 = getelementptr i8, ptr %v12, i64 %v94
  %v96 = getelementptr i8, ptr %v95, i64 416
  store <8 x float> splat (float 0x0000000000000000), ptr %v96, align 4
  %v97 = add nuw nsw i64 %i.bottom_below_inside.93, 1
  %v98 = icmp slt i64 %v97, 2
  br i1 %v98, label %loop91, label %done92
done92:
  br label %loop99
loop99:
  %i.right_inside_padded_p2.101 = phi i64 [ 0, %done92 ], [ %v105, %loop99 ]
  %v102 = mul i64 %i.right_inside_padded_p2.101, 128
  %v103 = getelementptr i8, ptr %v12, i64 %v102
  %v104 = getelementptr i8, ptr %v103, i64 96
  store <8 x float> splat (float 0x0000000000000000), ptr %v104, align 4
  %v105 = add nuw nsw i64 %i.right_inside_padded_p2.101, 1
  %v106 = icmp slt i64 %v105, 4
  br i1 %v106, label %loop99, label %done100
done100:
  br label %loop107
loop107:
  %i.row.109 = phi i64 [ 0, %done100 ], [ %v167, %done111 ]
  %v113 = mul i64 %i.row.109, 128
  %v114 = getelementptr i8, ptr %v12, i64 %v113
  %v162 = mul i64 %i.row.109, 64
  %v163 = getelementptr i8, ptr %v11, i64 %v162
  br label %loop110
loop110:
  %i.column.112 = phi i64 [ 0, %loop107 ], [ %v165, %loop110 ]
  %v115 = mul i64 %i.column.112, 32
  %v116 = getelementptr i8, ptr %v114, i64 %v115
  %v164 = getelementptr i8, ptr %v163, i64 %v115
  %v117 = load <8 x float>, ptr %v116, align 4
  %v118 = load <8 x float>, ptr %v7, align 4
  %v119 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v117, <8 x float> %v118, <8 x float> splat (float 0x0000000000000000))
  %v120 = getelementptr i8, ptr %v116, i64 32
  %v121 = load <8 x float>, ptr %v120, align 4
  %v122 = getelementptr i8, ptr %v7, i64 32
  %v123 = load <8 x float>, ptr %v122, align 4
  %v124 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v121, <8 x float> %v123, <8 x float> %v119)
  %v125 = getelementptr i8, ptr %v116, i64 64
  %v126 = load <8 x float>, ptr %v125, align 4
  %v127 = getelementptr i8, ptr %v7, i64 64
  %v128 = load <8 x float>, ptr %v127, align 4
  %v129 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v126, <8 x float> %v128, <8 x float> %v124)
  %v130 = getelementptr i8, ptr %v116, i64 128
  %v131 = load <8 x float>, ptr %v130, align 4
  %v132 = getelementptr i8, ptr %v7, i64 96
  %v133 = load <8 x float>, ptr %v132, align 4
  %v134 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v131, <8 x float> %v133, <8 x float> %v129)
  %v135 = getelementptr i8, ptr %v116, i64 160
  %v136 = load <8 x float>, ptr %v135, align 4
  %v137 = getelementptr i8, ptr %v7, i64 128
  %v138 = load <8 x float>, ptr %v137, align 4
  %v139 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v136, <8 x float> %v138, <8 x float> %v134)
  %v140 = getelementptr i8, ptr %v116, i64 192
  %v141 = load <8 x float>, ptr %v140, align 4
  %v142 = getelementptr i8, ptr %v7, i64 160
  %v143 = load <8 x float>, ptr %v142, align 4
  %v144 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v141, <8 x float> %v143, <8 x float> %v139)
  %v145 = getelementptr i8, ptr %v116, i64 256
  %v146 = load <8 x float>, ptr %v145, align 4
  fence syncscope("singlethread") acq_rel
  %v147 = getelementptr i8, ptr %v7, i64 192
  %v148 = load <8 x float>, ptr %v147, align 4
  %v149 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v146, <8 x float> %v148, <8 x float> %v144)
  fence syncscope("singlethread") acq_rel
  %v150 = getelementptr i8, ptr %v116, i64 288
  %v151 = load <8 x float>, ptr %v150, align 4
  fence syncscope("singlethread") acq_rel
  %v152 = getelementptr i8, ptr %v7, i64 224
  %v153 = load <8 x float>, ptr %v152, align 4
  %v154 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v151, <8 x float> %v153, <8 x float> %v149)
  fence syncscope("singlethread") acq_rel
  %v155 = getelementptr i8, ptr %v116, i64 320
  %v156 = load <8 x float>, ptr %v155, align 4
  fence syncscope("singlethread") acq_rel
  %v157 = getelementptr i8, ptr %v7, i64 256
  %v158 = load <8 x float>, ptr %v157, align 4
  %v159 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v156, <8 x float> %v158, <8 x float> %v154)
  fence syncscope("singlethread") acq_rel
  %v160 = load <8 x float>, ptr %v9, align 4
  %v161 = fadd contract <8 x float> %v159, %v160
  store <8 x float> %v161, ptr %v164, align 4
  %v165 = add nuw nsw i64 %i.column.112, 1
  %v166 = icmp slt i64 %v165, 2
  br i1 %v166, label %loop110, label %done111
done111:
  %v167 = add nuw nsw i64 %i.row.109, 1
  %v168 = icmp slt i64 %v167, 2
  br i1 %v168, label %loop107, label %done108
done108:
  ret i32 0
}
declare <8 x float> @llvm.fabs.v8f32(<8 x float>)
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
